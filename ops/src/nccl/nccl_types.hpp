// hvd's element types and reduce operations in NCCL's words.
#pragma once

#include <optional>

#include <nccl.h>

#include <hvd/core/types.hpp>

namespace hvd {

[[nodiscard]] bool is_floating(DType dtype) noexcept;

/// Empty where NCCL cannot reduce this: 16-bit integers have no type in it, and the average of
/// integers is that of the exact sum, while NCCL sums in the type itself.
[[nodiscard]] std::optional<ncclDataType_t> nccl_type(DType dtype, ReduceOp op) noexcept;

/// Of a pair that has an `nccl_type`. A boolean is a byte of 0 or 1: or is max, and is min.
[[nodiscard]] ncclRedOp_t nccl_op(DType dtype, ReduceOp op) noexcept;

}  // namespace hvd
