#include "nccl/reduce_recipe.hpp"

#include <fmt/format.h>

#include "nccl/nccl_types.hpp"

namespace hvd {

ReduceRecipe reduce_recipe(const AllreduceCall& call, int size) {
  const auto type = nccl_type(call.dtype, call.op);
  if (!type) {
    throw Error(Errc::unsupported,
                fmt::format("NCCL has no {} of {}", to_string(call.op), to_string(call.dtype)));
  }
  const bool scaled = call.prescale != 1.0 || call.postscale != 1.0;
  if (scaled && !is_floating(call.dtype)) {
    throw Error(Errc::unsupported,
                fmt::format("NCCL scales floating point only, not {}: scale on the host",
                            to_string(call.dtype)));
  }

  ReduceRecipe recipe;
  recipe.type = *type;
  recipe.op = nccl_op(call.dtype, call.op);
  recipe.after = call.postscale;
  if (call.prescale == 1.0) return recipe;
  if (call.op == ReduceOp::sum) {
    recipe.premultiply = call.prescale;
  } else if (call.op == ReduceOp::average) {
    recipe.premultiply = call.prescale / size;
  } else {
    recipe.before = call.prescale;
  }
  return recipe;
}

}  // namespace hvd
