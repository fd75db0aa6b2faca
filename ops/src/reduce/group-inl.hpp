// A group is the elements that a kernel loads, combines and stores at once; 16-bit floats are two
// vectors of float. The file is compiled once per target. It is included again for every target, so
// it has a toggled guard instead of a pragma.
#if defined(HVD_REDUCE_GROUP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_REDUCE_GROUP_INL
#undef HVD_REDUCE_GROUP_INL
#else
#define HVD_REDUCE_GROUP_INL
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduce/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

template <class T>
struct PlainGroup {
  using Storage = T;
  using Number = T;
  using Tag = hn::ScalableTag<T>;
  using Vec = hn::Vec<Tag>;
  static constexpr std::size_t kUnroll = 4;
  static constexpr bool kFloating = std::is_floating_point_v<T>;

  static HWY_INLINE std::size_t elements() { return hn::Lanes(Tag()); }
  static HWY_INLINE Vec load(const T* p) { return hn::LoadU(Tag(), p); }
  template <class Op>
  static HWY_INLINE Vec combine(Op op, Vec a, Vec b) {
    return op(a, b);
  }
  template <class Fn>
  static HWY_INLINE void apply(Fn fn, Vec& v) {
    v = fn(v);
  }
  static HWY_INLINE Vec round(Vec v) { return v; }
  static HWY_INLINE void store_rounded(Vec v, T* p) { hn::StoreU(v, Tag(), p); }
  static HWY_INLINE void stream_rounded(Vec v, T* p) { hn::Stream(v, Tag(), p); }
  static HWY_INLINE void store(Vec v, T* p) { store_rounded(round(v), p); }
};

struct FloatPair {
  hn::Vec<F32> first;
  hn::Vec<F32> second;
};

/// Holds the parts that both 16-bit formats share.
struct PairGroup {
  using Storage = std::uint16_t;
  using Number = float;
  static constexpr std::size_t kUnroll = 2;
  static constexpr bool kFloating = true;

  static HWY_INLINE std::size_t elements() { return 2 * hn::Lanes(F32()); }
  template <class Op>
  static HWY_INLINE FloatPair combine(Op op, const FloatPair& a, const FloatPair& b) {
    return {op(a.first, b.first), op(a.second, b.second)};
  }
  template <class Fn>
  static HWY_INLINE void apply(Fn fn, FloatPair& v) {
    v.first = fn(v.first);
    v.second = fn(v.second);
  }
};

/// Each 32-bit lane holds two bf16 values. Converts them to two f32 vectors by shifts and masks,
/// without exchanging values between lanes, and rounds to nearest even when it converts back.
struct BFloat16Group : PairGroup {
  using Bits = hn::Vec<U32>;
  static constexpr bool kScalar = HWY_TARGET == HWY_SCALAR;  // an unaligned load is plain C++ there

  static HWY_INLINE Bits load_bits(const std::uint16_t* p) {
    if constexpr (kScalar) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, p, sizeof bits);
      return hn::Set(U32(), bits);
    } else {
      return hn::LoadU(U32(), reinterpret_cast<const std::uint32_t*>(p));
    }
  }
  static HWY_INLINE FloatPair load(const std::uint16_t* p) {
    const U32 u32;
    const auto bits = load_bits(p);
    return {hn::BitCast(F32(), hn::ShiftLeft<16>(bits)),
            hn::BitCast(F32(), hn::And(bits, hn::Set(u32, 0xFFFF0000U)))};
  }
  static HWY_INLINE Bits round(const FloatPair& v) {
    const auto low = hn::ShiftRight<16>(BFloat16::rounded(v.first));
    return hn::OrAnd(low, BFloat16::rounded(v.second), hn::Set(U32(), 0xFFFF0000U));
  }
  static HWY_INLINE void store_rounded(Bits v, std::uint16_t* p) {
    if constexpr (kScalar) {
      const std::uint32_t bits = hn::GetLane(v);
      std::memcpy(p, &bits, sizeof bits);
    } else {
      hn::StoreU(v, U32(), reinterpret_cast<std::uint32_t*>(p));
    }
  }
  static HWY_INLINE void stream_rounded(Bits v, std::uint16_t* p) {
    hn::Stream(v, U32(), reinterpret_cast<std::uint32_t*>(p));
  }
  static HWY_INLINE void store(const FloatPair& v, std::uint16_t* p) { store_rounded(round(v), p); }
};

struct Float16Group : PairGroup {
  struct Halves {
    hn::Vec<HalfBits> first;
    hn::Vec<HalfBits> second;
  };

  static HWY_INLINE FloatPair load(const std::uint16_t* p) {
    return {Float16::load(p), Float16::load(p + hn::Lanes(F32()))};
  }
  static HWY_INLINE Halves round(const FloatPair& v) {
    return {Float16::to_bits(v.first), Float16::to_bits(v.second)};
  }
  static HWY_INLINE void store_rounded(const Halves& v, std::uint16_t* p) {
    hn::StoreU(v.first, HalfBits(), p);
    hn::StoreU(v.second, HalfBits(), p + hn::Lanes(F32()));
  }
  static HWY_INLINE void stream_rounded(const Halves& v, std::uint16_t* p) {
    if constexpr (Float16::kConverts) {
      hn::Stream(v.first, HalfBits(), p);
      hn::Stream(v.second, HalfBits(), p + hn::Lanes(F32()));
    } else {  // half a vector, of which Highway 1.0.3 streams a whole one
      store_rounded(v, p);
    }
  }
  static HWY_INLINE void store(const FloatPair& v, std::uint16_t* p) { store_rounded(round(v), p); }
};

/// Divides and scales a result in the type in which it was accumulated. It is a true division, so
/// that the mean of equal values is that value; for a power of two a product gives the same.
template <class Group>
class Finish {
 public:
  using T = typename Group::Number;

  Finish(int divisor, double factor) {
    if constexpr (Group::kFloating) {
      divisor_ = static_cast<T>(divisor);
      factor_ = static_cast<T>(factor);
      divides_ = divisor != 1;
      multiplies_ = factor != 1.0;
      if (divides_ && !multiplies_ && std::has_single_bit(static_cast<unsigned>(divisor))) {
        factor_ = T{1} / divisor_;
        divides_ = false;
        multiplies_ = true;
      }
    }
  }

  template <class Value>
  HWY_INLINE void operator()(Value& value) const {
    if constexpr (Group::kFloating) {
      if (divides_) {
        Group::apply(
            [this](auto v) { return hn::Div(v, hn::Set(hn::DFromV<decltype(v)>(), divisor_)); },
            value);
      }
      if (multiplies_) {
        Group::apply(
            [this](auto v) { return hn::Mul(v, hn::Set(hn::DFromV<decltype(v)>(), factor_)); },
            value);
      }
    }
  }

 private:
  T divisor_{};
  T factor_{};
  bool divides_ = false;
  bool multiplies_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace hvd::detail
HWY_AFTER_NAMESPACE();

#endif
