// Provides Highway helpers, compiled once per target: loads and stores of elements, and the loops.
// The file is included again for every target, so it has a toggled guard instead of a pragma.
#if defined(HVD_REDUCE_SIMD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_REDUCE_SIMD_INL
#undef HVD_REDUCE_SIMD_INL
#else
#define HVD_REDUCE_SIMD_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Handles types whose vectors are computed with directly.
template <class T>
struct Plain {
  using Storage = T;
  using Tag = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<Tag> load(const T* p) { return hn::LoadU(Tag(), p); }
  static HWY_INLINE void store(hn::Vec<Tag> v, T* p) { hn::StoreU(v, Tag(), p); }
};

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using HalfBits = hn::Rebind<std::uint16_t, F32>;

/// Handles bfloat16, computed in float. Highway 1.0.3 truncates; this rounds to nearest even.
struct BFloat16 {
  using Storage = std::uint16_t;
  using Tag = F32;
  static HWY_INLINE hn::Vec<F32> load(const std::uint16_t* p) {
    const auto bits = hn::PromoteTo(U32(), hn::LoadU(HalfBits(), p));
    return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
  }
  /// Returns the result in the upper half of each lane.
  static HWY_INLINE hn::Vec<U32> rounded(hn::Vec<F32> v) {
    const U32 u32;
    const auto bits = hn::BitCast(u32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
    const auto nearest = hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7FFF)));
    const auto quiet_nan = hn::Or(bits, hn::Set(u32, 0x400000));
    return hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(v)), quiet_nan, nearest);
  }
  static HWY_INLINE void store(hn::Vec<F32> v, std::uint16_t* p) {
    hn::StoreU(hn::TruncateTo(HalfBits(), hn::ShiftRight<16>(rounded(v))), HalfBits(), p);
  }
};

/// Handles IEEE half, computed in float. Before AVX2, x86 cannot convert and Highway 1.0.3
/// truncates and loses infinities, so the conversions are spelled out for those targets.
struct Float16 {
  using Storage = std::uint16_t;
  using Tag = F32;
  using Half = hn::Rebind<hwy::float16_t, F32>;
  static constexpr bool kConverts = HWY_TARGET != HWY_SSSE3 && HWY_TARGET != HWY_SSE4 &&
                                    HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

  static HWY_INLINE hn::Vec<F32> load(const std::uint16_t* p) {
    const auto half = hn::LoadU(HalfBits(), p);
    if constexpr (kConverts) {
      return hn::PromoteTo(F32(), hn::BitCast(Half(), half));
    } else {
      return widen(hn::PromoteTo(U32(), half));
    }
  }

  static HWY_INLINE hn::Vec<HalfBits> to_bits(hn::Vec<F32> v) {
    if constexpr (kConverts) {
      return hn::BitCast(HalfBits(), hn::DemoteTo(Half(), v));
    } else {
      return hn::TruncateTo(HalfBits(), narrow(v));
    }
  }
  static HWY_INLINE void store(hn::Vec<F32> v, std::uint16_t* p) {
    hn::StoreU(to_bits(v), HalfBits(), p);
  }

  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<U32> half) {
    const U32 u32;
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(u32, 0x8000)));
    const auto exponent = hn::And(half, hn::Set(u32, 0x7C00));
    const auto mantissa = hn::And(half, hn::Set(u32, 0x03FF));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(u32, 0x7FFF)));
    const auto normal = hn::Add(magnitude, hn::Set(u32, (127 - 15) << 23));
    const auto special = hn::Or(magnitude, hn::Set(u32, 0x7F800000));
    const auto subnormal = hn::BitCast(
        u32, hn::Mul(hn::ConvertTo(F32(), hn::BitCast(I32(), mantissa)), hn::Set(F32(), 0x1p-24F)));
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(u32, 0x7C00)), special, normal);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(u32)), subnormal, bits);
    return hn::BitCast(F32(), hn::Or(bits, sign));
  }

  static HWY_INLINE hn::Vec<U32> narrow(hn::Vec<F32> v) {
    const U32 u32;
    const I32 i32;
    const auto bits = hn::BitCast(u32, v);
    const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(u32, 0x80000000)));
    const auto magnitude = hn::And(bits, hn::Set(u32, 0x7FFFFFFF));
    const auto at_most = hn::BitCast(i32, magnitude);  // signed: every target can compare it
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 1));
    const auto biased = hn::Sub(magnitude, hn::Set(u32, (127 - 15) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(biased, hn::Add(odd, hn::Set(u32, 0xFFF))));
    // Adding 0.5 leaves the subnormal's bits, rounded to nearest even, at the end of the mantissa.
    const auto half = hn::Set(F32(), 0.5F);
    const auto shifted = hn::BitCast(u32, hn::Add(hn::BitCast(F32(), magnitude), half));
    const auto subnormal = hn::Sub(shifted, hn::BitCast(u32, half));
    const auto nan =
        hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 0x3FF)), hn::Set(u32, 0x7E00));
    const auto below = [&](std::int32_t limit) {
      return hn::RebindMask(u32, hn::Lt(at_most, hn::Set(i32, limit)));
    };
    auto result = hn::IfThenElse(below(0x38800000), subnormal, normal);
    result = hn::IfThenElse(below(0x47800000), result, hn::Set(u32, 0x7C00));
    result = hn::IfThenElse(below(0x7F800001), result, nan);
    return hn::Or(result, sign);
  }
};

/// Stores op(a[i], b[i]) in dst[i]. The tail uses the same vector code, so that an element's result
/// does not depend on where a piece was cut.
template <class Format, class Op>
HWY_INLINE void map_two(Op op, void* dst, const void* a, const void* b, std::size_t count) {
  using T = typename Format::Storage;
  const std::size_t lanes = hn::Lanes(typename Format::Tag());
  auto* to = static_cast<T*>(dst);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Format::store(op(Format::load(x + i), Format::load(y + i)), to + i);
  }
  if (i == count) return;
  HWY_ALIGN T tail_x[HWY_MAX_BYTES / sizeof(T)] = {};
  HWY_ALIGN T tail_y[HWY_MAX_BYTES / sizeof(T)] = {};
  const std::size_t bytes = (count - i) * sizeof(T);
  std::memcpy(tail_x, x + i, bytes);
  std::memcpy(tail_y, y + i, bytes);
  Format::store(op(Format::load(tail_x), Format::load(tail_y)), tail_x);
  std::memcpy(to + i, tail_x, bytes);
}

/// Stores op(src[i]) in dst[i]. The tail uses the same vector code, as in `map_two`.
template <class Format, class Op>
HWY_INLINE void map_one(Op op, void* dst, const void* src, std::size_t count) {
  using T = typename Format::Storage;
  const std::size_t lanes = hn::Lanes(typename Format::Tag());
  auto* to = static_cast<T*>(dst);
  const auto* from = static_cast<const T*>(src);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) Format::store(op(Format::load(from + i)), to + i);
  if (i == count) return;
  HWY_ALIGN T tail[HWY_MAX_BYTES / sizeof(T)] = {};
  const std::size_t bytes = (count - i) * sizeof(T);
  std::memcpy(tail, from + i, bytes);
  Format::store(op(Format::load(tail)), tail);
  std::memcpy(to + i, tail, bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace hvd::detail
HWY_AFTER_NAMESPACE();

#endif
