#include "nccl/nccl_scaler.hpp"

#include <hvd/core/error.hpp>

#include "nccl/premul_sum.hpp"

namespace hvd {

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

}  // namespace hvd
