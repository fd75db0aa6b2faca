// How a reduction with its scales is made of what NCCL offers.
#pragma once

#include <optional>

#include <nccl.h>

#include "fusion/arithmetic.hpp"
#include "nccl/copier.hpp"

namespace hvd {

/// Scale the input by `before`, reduce with `op` or, when `premultiply` is set, with the sum of
/// premultiplied inputs, and scale the result by `after`.
struct ReduceRecipe {
  ncclDataType_t type = ncclFloat32;
  double before = 1.0;
  ncclRedOp_t op = ncclSum;
  std::optional<double> premultiply;
  double after = 1.0;
};

/// Among `size` ranks. Where inputs are `copied` anyway and `copier` scales for free, it does; else
/// the sum of premultiplied inputs saves a pass, unless the factor would lose bits in the type. All
/// ranks must ask alike: NCCL's ranks must agree on the operation.
/// Throws Errc::unsupported for what NCCL cannot do: see `nccl_type`, and integers scaled by a
/// copier that cannot.
[[nodiscard]] ReduceRecipe reduce_recipe(const Arithmetic& arithmetic, int size,
                                         const Copier& copier, bool copied);

}  // namespace hvd
