#include "nccl/reduce_recipe.hpp"

#include <fmt/format.h>

#include "nccl/nccl_types.hpp"

namespace hvd {

ReduceRecipe reduce_recipe(const Arithmetic& arithmetic, int size) {
  const auto [dtype, op, prescale, postscale, divisor] = arithmetic;
  const auto type = nccl_type(dtype, op);
  if (!type) {
    throw Error(Errc::unsupported,
                fmt::format("NCCL has no {} of {}", to_string(op), to_string(dtype)));
  }
  if ((prescale != 1.0 || postscale != 1.0) && !is_floating(dtype)) {
    throw Error(Errc::unsupported,
                fmt::format("NCCL scales floating point only, not {}: scale on the host",
                            to_string(dtype)));
  }

  ReduceRecipe recipe;
  recipe.type = *type;
  recipe.op = nccl_op(dtype, op);
  recipe.after = postscale;
  const bool averages = op == ReduceOp::average;
  if (averages && divisor != size && !is_floating(dtype)) {
    throw Error(Errc::unsupported,
                fmt::format("NCCL divides the sum of {} by the number of ranks, {}, not by {}",
                            to_string(dtype), size, divisor));
  }
  if (averages && (divisor != size || prescale != 1.0)) {
    recipe.premultiply = prescale / divisor;
  } else if (op == ReduceOp::sum && prescale != 1.0) {
    recipe.premultiply = prescale;
  } else if (!averages) {
    recipe.before = prescale;
  }
  return recipe;
}

}  // namespace hvd
