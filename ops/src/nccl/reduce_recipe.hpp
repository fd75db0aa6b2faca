// Composes a reduction and its scales from what NCCL offers, and translates its types and
// operations to NCCL's.
#pragma once

#include <optional>

#include <nccl.h>

#include <hvd/core/types.hpp>

#include "fusion/accumulator.hpp"
#include "nccl/copier.hpp"

namespace hvd::detail {

/// Returns NCCL's type, or nothing where NCCL cannot do the reduction: it has no type of 16-bit
/// integers, and it sums integers in their own type, while their average needs the exact sum.
[[nodiscard]] std::optional<ncclDataType_t> nccl_type(DType dtype, ReduceOp op) noexcept;

/// Returns NCCL's operation for a pair that has an `nccl_type`. A boolean is a byte of 0 or 1, so
/// that max means or, and min means and.
[[nodiscard]] ncclRedOp_t nccl_op(DType dtype, ReduceOp op) noexcept;

/// Returns whether NCCL can do the reduction within the contract's precision, whatever the scales
/// and among any number of ranks: the answer for all ranks also counts for their process sets, and
/// for those that are left after a join. NCCL multiplies 16-bit floats by a factor rounded to the
/// type. With 1/3, also that of an average over three ranks, every bf16 result would be 0.2 % too
/// large. Reductions of these floats therefore need a copier that scales for free.
[[nodiscard]] bool can_reduce(DType dtype, ReduceOp op, const Copier& copier) noexcept;

/// Describes the steps of a reduction: scale the input by `before`; reduce with `op` or, when
/// `premultiply` is set, with the sum of premultiplied inputs; scale the result by `after`.
struct ReduceRecipe {
  ncclDataType_t type = ncclFloat32;
  double before = 1.0;
  ncclRedOp_t op = ncclSum;
  std::optional<double> premultiply;
  double after = 1.0;
};

/// Returns the steps for a reduction among `size` ranks. Where inputs are `copied` anyway and
/// `copier` scales for free, the copier scales. Otherwise the sum of premultiplied inputs saves a
/// pass, unless the factor would lose bits in the type. An average of 16-bit floats whose 1/divisor
/// has no exact form is a sum of inputs times a power of two, so that it cannot overflow, and the
/// rest of the factor is part of `after`. Inputs are multiplied in the type, also by NCCL's own
/// average: a product that is subnormal, in f16 below 6.1e-5, loses bits or becomes zero. All ranks
/// must pass the same arguments, since NCCL's ranks must agree on the operation. Throws
/// Errc::unsupported for what NCCL cannot do: see `nccl_type`, and integers scaled by a copier that
/// cannot.
[[nodiscard]] ReduceRecipe reduce_recipe(const Arithmetic& arithmetic, int size,
                                         const Copier& copier, bool copied);

}  // namespace hvd::detail
