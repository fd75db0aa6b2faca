#include "nccl/reduce_recipe.hpp"

#include <fmt/format.h>

#include "nccl/nccl_types.hpp"
#include "nccl/premul_sum.hpp"

namespace hvd {

ReduceRecipe reduce_recipe(const Arithmetic& arithmetic, int size, const Copier& copier,
                           bool copied) {
  const auto [dtype, op, prescale, postscale, divisor] = arithmetic;
  const auto type = nccl_type(dtype, op);
  if (!type) {
    throw Error(Errc::unsupported,
                fmt::format("NCCL has no {} of {}", to_string(op), to_string(dtype)));
  }
  if ((prescale != 1.0 || postscale != 1.0) && !copier.scales(dtype)) {
    throw Error(
        Errc::unsupported,
        fmt::format("a build without nvcc scales floating point only, not {}", to_string(dtype)));
  }

  ReduceRecipe recipe;
  recipe.type = *type;
  recipe.op = nccl_op(dtype, op);
  recipe.after = postscale;
  const bool averages = op == ReduceOp::average;
  // An average of NCCL's own divides by the number of ranks, whatever the inputs were scaled by.
  const bool divides = averages && divisor != size;
  const bool adds = op == ReduceOp::sum || averages;
  const double factor = divides ? prescale / divisor : prescale;
  if (divides) recipe.op = ncclSum;
  const double multiplier = averages && !divides ? factor / size : factor;
  const bool by_copier = copier.scales_for_free() && (copied || !is_exact(*type, multiplier));
  if (!adds || !is_floating(dtype) || factor == 1.0 || by_copier) {
    recipe.before = factor;
  } else {
    recipe.premultiply = multiplier;
  }
  return recipe;
}

}  // namespace hvd
