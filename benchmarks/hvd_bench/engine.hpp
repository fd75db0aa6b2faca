// The engine of one host without what stands before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hvd/core/session.hpp>
#include <hvd/ops/backends.hpp>

#include "options.hpp"

namespace hvd::bench {

/// Beside a context, among the same ranks: calls its backend on the caller's thread, as the
/// executor does, with nothing submitted, agreed on or woken.
class Engine {
 public:
  /// Collective. Throws Error, Errc::unsupported where ranks are on several hosts or there is one.
  Engine();

  [[nodiscard]] const std::shared_ptr<Arena>& arena() const noexcept { return host_.arena; }
  /// In place.
  void allreduce(std::byte* data, std::int64_t count, const Options& options);

 private:
  Session session_;
  HostEngine host_;
};

}  // namespace hvd::bench
