#include "nccl/premul_sum.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace hvd {
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
  // Goes with the communicator when that was aborted.
  if (comm_->get() != nullptr) static_cast<void>(ncclRedOpDestroy(op_, comm_->get()));
}

}  // namespace hvd
