// Off while it lives.
#pragma once

namespace hvd {

/// Turns something off while it lives. Must not outlive the optimizer it came from.
class [[nodiscard]] ScopedPause {
 public:
  explicit ScopedPause(int& depth) noexcept : depth_(depth) { ++depth_; }
  ~ScopedPause() { --depth_; }
  ScopedPause(const ScopedPause&) = delete;
  ScopedPause& operator=(const ScopedPause&) = delete;

 private:
  int& depth_;
};

}  // namespace hvd
