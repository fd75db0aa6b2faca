#include "nccl/nccl_types.hpp"

namespace hvd {

bool is_floating(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

std::optional<ncclDataType_t> nccl_type(DType dtype, ReduceOp op) noexcept {
  if (op == ReduceOp::average && !is_floating(dtype)) return std::nullopt;
  switch (dtype) {
    case DType::u8:
      return ncclUint8;
    case DType::i8:
      return ncclInt8;
    case DType::i16:
      return std::nullopt;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::boolean:
      return ncclUint8;
  }
  return std::nullopt;
}

ncclRedOp_t nccl_op(DType dtype, ReduceOp op) noexcept {
  if (dtype == DType::boolean) {
    return op == ReduceOp::sum || op == ReduceOp::max ? ncclMax : ncclMin;
  }
  switch (op) {
    case ReduceOp::average:
      return ncclAvg;
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::product:
      return ncclProd;
  }
  return ncclSum;
}

}  // namespace hvd
