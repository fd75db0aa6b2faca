#include "nccl/nccl_comm.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "nccl/nccl_features.hpp"

namespace hvd {

NcclComm::NcclComm(const ncclUniqueId& id, int size, int rank, Watch& watch) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  try {
    settle(result, "ncclCommInitRankConfig", watch);
  } catch (...) {
    abort();
    throw;
  }
}

NcclComm::~NcclComm() { abort(); }

std::unique_ptr<NcclComm> NcclComm::split(bool member, int rank, Watch& watch) {
  std::unique_ptr<NcclComm> child(new NcclComm());
  try {
    // The child is there once the parent has settled, and usable once it has itself.
    settle(nccl_split(comm_, member, rank, &child->comm_), "ncclCommSplit", watch);
    if (!member) return nullptr;
    child->settle(ncclSuccess, "ncclCommSplit", watch);
  } catch (...) {
    abort();  // before the child goes: NCCL may still be about to write to it
    throw;
  }
  return child;
}

void NcclComm::settle(ncclResult_t result, std::string_view call, Watch& watch) {
  // Also after ncclSuccess: a group that was launched in the background reports through the
  // communicator only.
  if (result != ncclSuccess && result != ncclInProgress) fail(result, call, watch);
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) fail(asked, "ncclCommGetAsyncError", watch);
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) fail(state, call, watch);
    watch.pause();
  }
}

void NcclComm::check_health(const Watch& watch) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) fail(asked, "ncclCommGetAsyncError", watch);
  if (state != ncclSuccess && state != ncclInProgress) fail(state, "NCCL", watch);
}

void NcclComm::close(Watch& watch) {
  settle(ncclCommFinalize(comm_), "ncclCommFinalize", watch);
  static_cast<void>(ncclCommDestroy(release()));
}

void NcclComm::abort() noexcept {
  if (comm_ != nullptr) static_cast<void>(ncclCommAbort(release()));
}

void NcclComm::fail(ncclResult_t result, std::string_view call, const Watch& watch) const {
  const char* detail = comm_ == nullptr ? "" : ncclGetLastError(comm_);
  Fault fault;
  fault.cause = fmt::format("{}: {}", call, ncclGetErrorString(result));
  if (detail != nullptr && *detail != '\0') fault.cause += fmt::format(" ({})", detail);
  fault.phase = watch.phase();
  fault.elapsed = watch.elapsed();
  // "Remote" and "system" are what a vanished peer looks like from here: its sockets break.
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  throw Error(peer ? Errc::peer_lost : Errc::internal, std::move(fault));
}

}  // namespace hvd
