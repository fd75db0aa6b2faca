// Communicators that are being aborted.
#pragma once

#include <future>
#include <span>
#include <vector>

#include <nccl.h>

#include <hvd/core/types.hpp>

namespace hvd {

/// ncclCommAbort ends a communicator's own kernels at once, but returns only when its last one has
/// had its turn in the stream. So one that is aborted behind a kernel of another would wait for
/// ever if that were aborted after it, and whoever aborts one behind a stream of the trainer's that
/// stands still waits for that. (In NCCL 2.21 an NCCL group does not change that.)
class CommAborts {
 public:
  CommAborts() noexcept = default;
  /// Waits for all to end.
  ~CommAborts() = default;
  CommAborts(const CommAborts&) = delete;
  CommAborts& operator=(const CommAborts&) = delete;

  /// Aborts all that are not null at the same time, each on a thread of its own, and does not wait.
  void begin(std::span<const ncclComm_t> comms, int device) noexcept;
  /// Whether all have ended by then.
  [[nodiscard]] bool wait_until(Deadline deadline) noexcept;

 private:
  std::vector<std::future<void>> running_;
};

}  // namespace hvd
