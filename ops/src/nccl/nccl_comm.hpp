// An owned, non-blocking NCCL communicator.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include <nccl.h>

#include "polling/watch.hpp"

namespace hvd {

/// Non-blocking: any call on it may return before it has taken effect. Work counts as being in its
/// stream only after `settle`. One thread at a time.
class NcclComm {
 public:
  /// Joins on the current device. Collective over `size` ranks; bounded by `watch`.
  NcclComm(const ncclUniqueId& id, int size, int rank, Watch& watch);
  /// Aborts what `close` has not closed.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Collective over all its ranks: a communicator of the members, in the order of their ranks
  /// here. Null for the others.
  [[nodiscard]] std::unique_ptr<NcclComm> split(bool member, int rank, Watch& watch);

  [[nodiscard]] ncclComm_t get() const noexcept { return comm_; }

  /// Takes the result of a call and returns when the call has taken effect. Throws Errc::peer_lost
  /// (NCCL does not say which), Errc::internal with NCCL's text, or what `watch` throws.
  void settle(ncclResult_t result, std::string_view call, Watch& watch);
  /// Throws what NCCL has found out about the network or a peer since.
  void check_health(const Watch& watch) const;
  /// Collective: leaves once all ranks have nothing more to do.
  void close(Watch& watch);
  /// Gives the communicator up, so that the caller may abort it; null when there is none any more.
  [[nodiscard]] ncclComm_t release() noexcept { return std::exchange(comm_, nullptr); }

 private:
  NcclComm() noexcept = default;
  void abort() noexcept;
  [[noreturn]] void fail(ncclResult_t result, std::string_view call, const Watch& watch) const;

  ncclComm_t comm_ = nullptr;
};

}  // namespace hvd
