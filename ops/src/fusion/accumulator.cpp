#include "fusion/accumulator.hpp"

#include "fusion/blocks.hpp"
#include "fusion/identity.hpp"
#include "reduce/integer_mean.hpp"
#include "reduce/scale.hpp"

namespace hvd::detail {

Accumulator::Accumulator(const Arithmetic& arithmetic) noexcept
    : asked_(arithmetic),
      widened_(arithmetic.divisor != 1 && is_integer(arithmetic.dtype)),
      lanes_(widened_ ? mean_lanes(arithmetic.dtype) : 1) {}

void Accumulator::load(std::byte* to, const std::byte* from, std::int64_t count) const {
  if (from == nullptr) {
    fill_identity(dtype(), op(), to, count * lanes_);
  } else if (widened_) {
    widen_for_mean(asked_.dtype, reinterpret_cast<std::int64_t*>(to), from, count, asked_.divisor,
                   asked_.prescale);
  } else {
    scale(asked_.dtype, to, from, count, asked_.prescale);
  }
}

void Accumulator::finish(std::byte* data, std::int64_t count) const {
  if (widened_) return;
  if (asked_.divisor != 1) {
    finish_average(asked_.dtype, data, count, asked_.divisor, asked_.postscale);
  } else {
    scale(asked_.dtype, data, data, count, asked_.postscale);
  }
}

void Accumulator::unload(std::byte* to, const std::byte* from, std::int64_t count) const {
  if (to == nullptr) return;
  if (widened_) {
    narrow_mean(asked_.dtype, to, reinterpret_cast<const std::int64_t*>(from), count,
                asked_.divisor, asked_.postscale);
  } else {
    copy_bytes(to, from, bytes_of(count, asked_.dtype));
  }
}

}  // namespace hvd::detail
