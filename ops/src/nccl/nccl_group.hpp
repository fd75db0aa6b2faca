// Calls of NCCL that are launched as one.
#pragma once

#include <nccl.h>

namespace hvd {

/// From construction to `launch`, or to the end of its life: what this thread leaves open would
/// keep all its later calls from being launched.
class NcclGroup {
 public:
  NcclGroup() noexcept : result_(ncclGroupStart()), open_(result_ == ncclSuccess) {}
  ~NcclGroup() {
    if (open_) static_cast<void>(ncclGroupEnd());
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// False when NCCL would not have it: then there is nothing to call.
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// Takes the result of a call.
  void add(ncclResult_t result) noexcept {
    if (result != ncclSuccess && result != ncclInProgress) result_ = result;
  }
  /// The result of all of it.
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

}  // namespace hvd
