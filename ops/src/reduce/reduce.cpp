#include "reduce/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/reduce.cpp"
#include <hwy/foreach_target.h>  // before highway.h: compiles this file once per target
#include <hwy/highway.h>

#include "reduce/combine-inl.hpp"
#include "reduce/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

/// Highway cannot multiply lanes of every width. Blocks are copied because the pointers may be
/// unaligned, and multiplied in a type wide enough that nothing is promoted to a signed int.
template <class T>
HWY_INLINE void multiply_integers(void* dst, const void* a, const void* b, std::size_t count) {
  using Wide = std::conditional_t<(sizeof(T) < 4), std::uint32_t, T>;
  constexpr std::size_t kBlock = 256 / sizeof(T);
  T x[kBlock];
  T y[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    std::memcpy(x, static_cast<const T*>(a) + begin, n * sizeof(T));
    std::memcpy(y, static_cast<const T*>(b) + begin, n * sizeof(T));
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(Wide{x[i]} * Wide{y[i]});
    std::memcpy(static_cast<T*>(dst) + begin, x, n * sizeof(T));
  }
}

template <class Format>
HWY_INLINE void reduce_as(ReduceOp op, void* dst, const void* a, const void* b, std::size_t count) {
  using T = typename Format::Storage;
  constexpr bool kInteger = std::is_integral_v<hn::TFromD<typename Format::Tag>>;
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return map_two<Format>(Sum(), dst, a, b, count);
    case ReduceOp::min:
      return map_two<Format>(Minimum(), dst, a, b, count);
    case ReduceOp::max:
      return map_two<Format>(Maximum(), dst, a, b, count);
    case ReduceOp::product:
      if constexpr (kInteger) {
        return multiply_integers<std::make_unsigned_t<T>>(dst, a, b, count);
      } else {
        return map_two<Format>(Product(), dst, a, b, count);
      }
  }
}

void reduce_simd(DType dtype, ReduceOp op, void* dst, const void* a, const void* b,
                 std::size_t count) {
  switch (dtype) {
    case DType::u8:
      return reduce_as<Plain<std::uint8_t>>(op, dst, a, b, count);
    case DType::i8:
      return reduce_as<Plain<std::int8_t>>(op, dst, a, b, count);
    case DType::i16:
      return reduce_as<Plain<std::int16_t>>(op, dst, a, b, count);
    case DType::i32:
      return reduce_as<Plain<std::int32_t>>(op, dst, a, b, count);
    case DType::i64:
      return reduce_as<Plain<std::int64_t>>(op, dst, a, b, count);
    case DType::f16:
      return reduce_as<Float16>(op, dst, a, b, count);
    case DType::bf16:
      return reduce_as<BFloat16>(op, dst, a, b, count);
    case DType::f32:
      return reduce_as<Plain<float>>(op, dst, a, b, count);
    case DType::f64:
      return reduce_as<Plain<double>>(op, dst, a, b, count);
    case DType::boolean: {  // maximum is or, minimum is and, whatever byte represents true
      const bool any = op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::average;
      return reduce_as<Plain<std::uint8_t>>(any ? ReduceOp::max : ReduceOp::min, dst, a, b, count);
    }
    case DType::c64:  // calls have no complex types
    case DType::c128:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hvd::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::detail {

HWY_EXPORT(reduce_simd);

void reduce(DType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t count) {
  if (count <= 0) return;
  HWY_DYNAMIC_DISPATCH(reduce_simd)(dtype, op, dst, a, b, static_cast<std::size_t>(count));
}

}  // namespace hvd::detail
#endif
