// Wraps NCCL's handles as types.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <hvd/core/types.hpp>

#include "polling/watch.hpp"

namespace hvd::detail {

/// Owns a non-blocking NCCL communicator. Any call on it may return before it has taken effect, and
/// work is in its stream only after `settle`. One thread at a time may call it.
class NcclComm {
 public:
  /// Joins with the current device. Collective over `size` ranks; bounded by `watch`.
  NcclComm(const ncclUniqueId& id, int size, int rank, Watch& watch);
  /// Aborts the communicator unless `close` has closed it.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  [[nodiscard]] ncclComm_t get() const noexcept { return comm_; }

  /// Takes the result of a call and returns when the call has taken effect. Throws Errc::peer_lost
  /// (NCCL does not say which), Errc::internal with NCCL's text, or what `watch` throws.
  void settle(ncclResult_t result, std::string_view call, Watch& watch);
  /// Throws the error that NCCL has noticed on the network or of a peer since.
  void check_health(const Watch& watch) const;
  /// Closes the communicator once all ranks have nothing more to do. Collective.
  void close(Watch& watch);
  /// Gives the communicator up, so that the caller may abort it. Returns null when there is none
  /// any more.
  [[nodiscard]] ncclComm_t release() noexcept { return std::exchange(comm_, nullptr); }

 private:
  void abort() noexcept;
  [[noreturn]] void fail(ncclResult_t result, std::string_view call, const Watch& watch) const;

  ncclComm_t comm_ = nullptr;
};

/// Launches calls of NCCL as one: those from construction to `launch`. The destructor closes a
/// group that was not launched, since an open group would hold back all later calls of the thread.
class NcclGroup {
 public:
  NcclGroup() noexcept : result_(ncclGroupStart()), open_(result_ == ncclSuccess) {}
  ~NcclGroup() {
    if (open_) static_cast<void>(ncclGroupEnd());
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Returns false when NCCL refused to open the group. Then no call may be made in it.
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// Records the result of a call.
  void add(ncclResult_t result) noexcept {
    if (result != ncclSuccess && result != ncclInProgress) result_ = result;
  }
  /// Launches the calls and returns the first error.
  [[nodiscard]] ncclResult_t launch() noexcept {
    if (!open_) return result_;
    open_ = false;
    const ncclResult_t launched = ncclGroupEnd();
    return result_ == ncclSuccess ? launched : result_;
  }

 private:
  ncclResult_t result_;
  bool open_;
};

/// Holds communicators that are being aborted. ncclCommAbort ends a communicator's own kernels at
/// once, but returns only when the last of them has had its turn in the stream. Aborting a
/// communicator behind a kernel of another one would therefore wait for ever if that were aborted
/// later; it also waits behind a stalled stream of the trainer. (In NCCL 2.21 an NCCL group does
/// not change that.)
class CommAborts {
 public:
  CommAborts() noexcept = default;
  /// Waits until all have ended.
  ~CommAborts() = default;
  CommAborts(const CommAborts&) = delete;
  CommAborts& operator=(const CommAborts&) = delete;

  /// Aborts all that are not null at the same time, each on a thread of its own, and does not wait.
  void begin(std::span<const ncclComm_t> comms, int device) noexcept;
  /// Tells whether all have ended by `deadline`.
  [[nodiscard]] bool wait_until(Deadline deadline) noexcept;

 private:
  std::vector<std::future<void>> running_;
};

/// Tells whether a floating-point type can represent the factor. For f32 and f64 that is always
/// true, since their arithmetic rounds anyway.
[[nodiscard]] bool is_exact(ncclDataType_t type, double factor);

/// Owns an NCCL reduce operation: the sum of inputs that are each multiplied by a factor.
class PremulSum {
 public:
  /// `type` is a floating-point type, to which the factor is rounded. `comm` outlives the
  /// operation, which must live until the calls that use it have settled.
  PremulSum(NcclComm& comm, ncclDataType_t type, double factor, Watch& watch);
  ~PremulSum();
  PremulSum(const PremulSum&) = delete;
  PremulSum& operator=(const PremulSum&) = delete;

  [[nodiscard]] ncclRedOp_t get() const noexcept { return op_; }

 private:
  NcclComm* comm_;
  ncclRedOp_t op_ = ncclSum;
};

/// Multiplies device memory by a number without a kernel of our own: it reduces the memory with
/// NCCL's premultiplied sum over a communicator that has only this rank. The communicator is made
/// when it is first needed, since most programs never need it.
class NcclScaler {
 public:
  /// Queues dst = factor · src on `stream`, which is of the current device; `dst` may equal `src`.
  /// The factor is rounded to `type`, a floating-point type.
  void scale(const void* src, void* dst, std::int64_t count, ncclDataType_t type, double factor,
             cudaStream_t stream, Watch& watch);
  [[nodiscard]] bool has_started() const noexcept { return comm_ != nullptr; }
  /// Gives its communicator up, so that the caller may abort it. Returns null when there is none.
  [[nodiscard]] ncclComm_t release() noexcept;

 private:
  std::unique_ptr<NcclComm> comm_;
};

}  // namespace hvd::detail
