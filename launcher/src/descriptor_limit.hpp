// Room for the pipes of several hundred ranks.
#pragma once

#include <sys/resource.h>

namespace hvd::launcher {

/// Raises the soft limit on open descriptors to the hard one; some programs misbehave under a high
/// limit (select), so children are given the one before back.
class DescriptorLimit {
 public:
  DescriptorLimit() noexcept;
  /// What was before. Async-signal-safe.
  void restore() const noexcept;

 private:
  rlimit before_{};
  bool raised_ = false;
};

}  // namespace hvd::launcher
