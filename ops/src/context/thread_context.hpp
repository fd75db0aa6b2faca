// Gives a thread a default context of its own.
#pragma once

#include <hvd/core/context.hpp>

namespace hvd::detail {

/// While this object exists, `context` is the default context of the thread that made it. That
/// thread destroys it, and makes only one at a time.
class ThreadContext {
 public:
  explicit ThreadContext(Context& context);
  ~ThreadContext();
  /// Returns whether the calling thread has one.
  [[nodiscard]] static bool exists() noexcept;
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;
};

}  // namespace hvd::detail
