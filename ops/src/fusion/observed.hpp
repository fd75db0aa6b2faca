// Tells the observer of a call how long a part of it took.
#pragma once

#include <hvd/core/backend.hpp>

namespace hvd {

using Told = void (CallObserver::*)(Clock::time_point begin, Clock::time_point end);

/// `observer` may be null: then nobody looks at the clock.
template <class Body>
void observed(CallObserver* observer, Told told, Body body) {
  if (observer == nullptr) return body();
  const Clock::time_point began = Clock::now();
  body();
  (observer->*told)(began, Clock::now());
}

}  // namespace hvd
