#include "nccl/nccl_comm.hpp"

#include <exception>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {
namespace {

union Scalar {
  float f32;
  double f64;
  __half_raw f16;
  __nv_bfloat16_raw bf16;
};

Scalar scalar_of(ncclDataType_t type, double factor) {
  Scalar scalar{};
  if (type == ncclFloat64) {
    scalar.f64 = factor;
  } else if (type == ncclFloat16) {
    scalar.f16 = __double2half(factor);
  } else if (type == ncclBfloat16) {
    scalar.bf16 = __double2bfloat16(factor);
  } else {
    scalar.f32 = static_cast<float>(factor);
  }
  return scalar;
}

}  // namespace

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

void NcclComm::settle(ncclResult_t result, std::string_view call, Watch& watch) {
  // The communicator is asked also after ncclSuccess, because a group that was launched in the
  // background reports its errors there only.
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
  // The sockets of a peer that has vanished break, which NCCL reports as a remote or system error.
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  throw Error(peer ? Errc::peer_lost : Errc::internal, std::move(fault));
}

void CommAborts::begin(std::span<const ncclComm_t> comms, int device) noexcept {
  for (const ncclComm_t comm : comms) {
    if (comm == nullptr) continue;
    const auto abort = [comm, device] {
      // Without this call NCCL would make device 0 current again, and create a context there.
      static_cast<void>(cudaSetDevice(device));
      static_cast<void>(ncclCommAbort(comm));
    };
    try {
      running_.emplace_back();
      running_.back() = std::async(std::launch::async, abort);
    } catch (const std::exception&) {
      abort();  // no thread could be started
    }
  }
}

bool CommAborts::wait_until(Deadline deadline) noexcept {
  for (const std::future<void>& each : running_) {
    if (each.valid() && each.wait_until(deadline) != std::future_status::ready) return false;
  }
  return true;
}

bool is_exact(ncclDataType_t type, double factor) {
  const Scalar scalar = scalar_of(type, factor);
  if (type == ncclFloat16) return __half2float(scalar.f16) == static_cast<float>(factor);
  if (type == ncclBfloat16) return __bfloat162float(scalar.bf16) == static_cast<float>(factor);
  return true;
}

PremulSum::PremulSum(NcclComm& comm, ncclDataType_t type, double factor, Watch& watch)
    : comm_(&comm) {
  Scalar scalar = scalar_of(type, factor);
  comm.settle(ncclRedOpCreatePreMulSum(&op_, &scalar, type, ncclScalarHostImmediate, comm.get()),
              "ncclRedOpCreatePreMulSum", watch);
}

PremulSum::~PremulSum() {
  // An aborted communicator has freed its operations.
  if (comm_->get() != nullptr) static_cast<void>(ncclRedOpDestroy(op_, comm_->get()));
}

void NcclScaler::scale(const void* src, void* dst, std::int64_t count, ncclDataType_t type,
                       double factor, cudaStream_t stream, Watch& watch) {
  if (comm_ == nullptr) {
    ncclUniqueId id;
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) throw Error(Errc::internal, ncclGetErrorString(result));
    comm_ = std::make_unique<NcclComm>(id, 1, 0, watch);
  }
  const PremulSum op(*comm_, type, factor, watch);
  comm_->settle(ncclAllReduce(src, dst, static_cast<std::size_t>(count), type, op.get(),
                              comm_->get(), stream),
                "ncclAllReduce", watch);
}

ncclComm_t NcclScaler::release() noexcept { return comm_ == nullptr ? nullptr : comm_->release(); }

}  // namespace hvd::detail
