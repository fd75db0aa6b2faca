#include "reduce/scale.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/scale.cpp"
#include <hwy/foreach_target.h>  // before highway.h: compiles this file once per target
#include <hwy/highway.h>

#include "reduce/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

template <class T>
struct Multiply {
  T factor;
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return hn::Mul(v, hn::Set(hn::DFromV<V>(), factor));
  }
};

template <class T>
struct DivideMultiply {
  T divisor;
  T factor;
  template <class V>
  HWY_INLINE V operator()(V v) const {
    const hn::DFromV<V> d;
    return hn::Mul(hn::Div(v, hn::Set(d, divisor)), hn::Set(d, factor));
  }
};

template <class Format>
HWY_INLINE void multiply_as(void* dst, const void* src, std::size_t count, double factor) {
  using T = hn::TFromD<typename Format::Tag>;
  map_one<Format>(Multiply<T>{static_cast<T>(factor)}, dst, src, count);
}

template <class Format>
HWY_INLINE void average_as(void* data, std::size_t count, int ranks, double factor) {
  using T = hn::TFromD<typename Format::Tag>;
  map_one<Format>(DivideMultiply<T>{static_cast<T>(ranks), static_cast<T>(factor)}, data, data,
                  count);
}

void scale_floats(DType dtype, void* dst, const void* src, std::size_t count, double factor) {
  switch (dtype) {
    case DType::f16:
      return multiply_as<Float16>(dst, src, count, factor);
    case DType::bf16:
      return multiply_as<BFloat16>(dst, src, count, factor);
    case DType::f32:
      return multiply_as<Plain<float>>(dst, src, count, factor);
    default:
      return multiply_as<Plain<double>>(dst, src, count, factor);
  }
}

void average_floats(DType dtype, void* data, std::size_t count, int ranks, double factor) {
  switch (dtype) {
    case DType::f16:
      return average_as<Float16>(data, count, ranks, factor);
    case DType::bf16:
      return average_as<BFloat16>(data, count, ranks, factor);
    case DType::f32:
      return average_as<Plain<float>>(data, count, ranks, factor);
    default:
      return average_as<Plain<double>>(data, count, ranks, factor);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hvd::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::detail {
namespace {

/// Converts toward zero and clamps to the range of T; NaN becomes 0. A plain cast outside the range
/// would be undefined.
template <class T>
T clamp_to(double value) {
  constexpr double kBelow = static_cast<double>(std::numeric_limits<T>::min());
  // For i64 this is 2^63, the first double that is too large; for the narrower types it is exact.
  constexpr double kAbove = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
  if (std::isnan(value)) return 0;
  if (value <= kBelow) return std::numeric_limits<T>::min();
  if (value >= kAbove) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

template <class T>
void scale_integers(void* dst, const void* src, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(src) + i * sizeof(T), sizeof(T));
    value = clamp_to<T>(static_cast<double>(value) * factor);
    std::memcpy(static_cast<std::byte*>(dst) + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

HWY_EXPORT(scale_floats);
HWY_EXPORT(average_floats);

void scale(DType dtype, void* dst, const void* src, std::int64_t count, double factor) {
  if (count <= 0) return;
  const auto n = static_cast<std::size_t>(count);
  if (factor == 1.0 || (dtype == DType::boolean && factor != 0.0)) {
    if (dst != src) std::memcpy(dst, src, n * size_of(dtype));
    return;
  }
  switch (dtype) {
    case DType::u8:
      return scale_integers<std::uint8_t>(dst, src, n, factor);
    case DType::i8:
      return scale_integers<std::int8_t>(dst, src, n, factor);
    case DType::i16:
      return scale_integers<std::int16_t>(dst, src, n, factor);
    case DType::i32:
      return scale_integers<std::int32_t>(dst, src, n, factor);
    case DType::i64:
      return scale_integers<std::int64_t>(dst, src, n, factor);
    case DType::boolean:
      std::memset(dst, 0, n);
      return;
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
      HWY_DYNAMIC_DISPATCH(scale_floats)(dtype, dst, src, n, factor);
      return;
    case DType::c64:  // calls have no complex types
    case DType::c128:
      return;
  }
}

void finish_average(DType dtype, void* data, std::int64_t count, int ranks, double postscale) {
  if (count <= 0 || (ranks == 1 && postscale == 1.0)) return;
  HWY_DYNAMIC_DISPATCH(average_floats)
  (dtype, data, static_cast<std::size_t>(count), ranks, postscale);
}

}  // namespace hvd::detail
#endif
