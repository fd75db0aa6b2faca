#include "nccl/reduce_recipe.hpp"

#include <fmt/format.h>

#include "nccl/nccl_comm.hpp"

namespace hvd::detail {

std::optional<ncclDataType_t> nccl_type(DType dtype, ReduceOp op) noexcept {
  if (op == ReduceOp::average && !is_floating_point(dtype)) return std::nullopt;
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
    case DType::c64:  // calls have no complex types
    case DType::c128:
      break;
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

namespace {

bool divides_exactly(ncclDataType_t type, int divisor) { return is_exact(type, 1.0 / divisor); }

/// Returns the largest power of two that is not more than 1/divisor.
double power_below_share(int divisor) {
  double power = 1.0;
  while (power * divisor > 1.0) power /= 2;
  return power;
}

}  // namespace

bool can_reduce(DType dtype, ReduceOp op, const Copier& copier) noexcept {
  if (!nccl_type(dtype, op) || !copier.scales(dtype)) return false;
  const bool rounds = dtype == DType::f16 || dtype == DType::bf16;
  return copier.scales_for_free() || !rounds;
}

ReduceRecipe reduce_recipe(const Arithmetic& arithmetic, int size, const Copier& copier,
                           bool copied) {
  auto [dtype, op, prescale, postscale, divisor] = arithmetic;
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

  // For one rank NCCL's average launches a kernel for each tensor, and its sum launches none.
  if (op == ReduceOp::average && divisor == 1) op = ReduceOp::sum;
  ReduceRecipe recipe;
  recipe.type = *type;
  recipe.op = nccl_op(dtype, op);
  recipe.after = postscale;
  const bool averages = op == ReduceOp::average;
  const bool in_two_steps =
      averages && copier.scales_for_free() && !divides_exactly(*type, divisor);
  // NCCL's own average divides by the number of ranks.
  const bool divides = averages && (divisor != size || in_two_steps);
  const bool adds = op == ReduceOp::sum || averages;
  double factor = divides ? prescale / divisor : prescale;
  if (in_two_steps) {
    const double power = power_below_share(divisor);
    factor = prescale * power;
    recipe.after = postscale / (power * divisor);
  }
  if (divides) recipe.op = ncclSum;
  const double multiplier = averages && !divides ? factor / size : factor;
  // NCCL's kernel for one rank may miss the last elements (plain_copier.cpp).
  const bool by_copier =
      size == 1 || (copier.scales_for_free() && (copied || !is_exact(*type, multiplier)));
  if (!adds || !is_floating_point(dtype) || factor == 1.0 || by_copier) {
    recipe.before = factor;
  } else {
    recipe.premultiply = multiplier;
  }
  return recipe;
}

}  // namespace hvd::detail
