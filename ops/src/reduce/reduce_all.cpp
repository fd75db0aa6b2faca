#include "reduce/reduce_all.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>

#include "reduce/integer_mean.hpp"
#include "reduce/reduce.hpp"
#include "reduce/scale.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/reduce_all.cpp"
#include <hwy/foreach_target.h>  // before highway.h: compiles this file once per target
#include <hwy/highway.h>

#include "reduce/combine-inl.hpp"
#include "reduce/group-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

/// Holds one reduction: the pointers to sources and targets, and the loop over the elements. For
/// each group of elements it loads those of source 0, combines them with those of sources 1, 2, …
/// in this order, divides and scales the result, and stores it in every target.
template <class Group, class Op>
class Loop {
 public:
  using T = typename Group::Storage;

  Loop(Op op, const Finish<Group>& finish, std::span<std::byte* const> to,
       std::span<const std::byte* const> from)
      : op_(op), finish_(finish), to_(to), from_(from) {}

  void run(std::size_t count, bool stream) const {
    const std::size_t step = Group::elements();
    std::size_t i = 0;
    if constexpr (kOften) i = run_fast(count, stream);
    for (; i + step <= count; i += step) {
      auto sum = Group::load(source(0) + i);
      for (std::size_t s = 1; s < from_.size(); ++s) {
        sum = Group::combine(op_, sum, Group::load(source(s) + i));
      }
      finish_(sum);
      for (std::size_t k = 0; k < to_.size(); ++k) Group::store(sum, target(k) + i);
    }
    partial(i, count - i);
  }

 private:
  /// Only sums of floating point, which gradients need, get unrolled code, since every
  /// instantiation is compiled once per kind of CPU.
  static constexpr bool kOften = Group::kFloating && std::is_same_v<Op, Sum>;
  static constexpr std::size_t kUnroll = Group::kUnroll;
  static constexpr std::size_t kNever = ~std::size_t{0};

  [[nodiscard]] const T* source(std::size_t s) const {
    return reinterpret_cast<const T*>(from_[s]);
  }
  [[nodiscard]] T* target(std::size_t k) const { return reinterpret_cast<T*>(to_[k]); }

  /// Returns the number of elements before all targets are aligned at once, or kNever.
  [[nodiscard]] std::size_t unaligned_head() const {
    constexpr std::size_t kAlign = HWY_MAX_BYTES;
    const auto behind = [](const std::byte* p) {
      return reinterpret_cast<std::uintptr_t>(p) % kAlign;
    };
    const std::size_t first = behind(to_[0]);
    for (const std::byte* p : to_) {
      if (behind(p) != first) return kNever;
    }
    const std::size_t bytes = (kAlign - first) % kAlign;
    return bytes % sizeof(T) == 0 ? bytes / sizeof(T) : kNever;
  }

  /// Reduces elements from the first one on, as many as fill whole unrolled steps, and returns
  /// their number. Streaming stores have to be aligned: the elements before that are stored as
  /// usual.
  HWY_NOINLINE std::size_t run_fast(std::size_t count, bool stream) const {
    const std::size_t step = kUnroll * Group::elements();
    const std::size_t head = stream ? unaligned_head() : kNever;
    std::size_t i = 0;
    if (head == kNever) {
      for (; i + step <= count; i += step) unrolled<false>(i);
      return i;
    }
    i = std::min(head, count);
    partial(0, i);
    for (; i + step <= count; i += step) unrolled<true>(i);
    hwy::FlushStream();
    return i;
  }

  /// Handles several groups at a time, so that the loops over ranks cost little.
  template <bool kStream>
  HWY_INLINE void unrolled(std::size_t i) const {
    const std::size_t step = Group::elements();
    const T* p = source(0) + i;
    auto a = Group::load(p);
    auto b = Group::load(p + step);
    if constexpr (kUnroll == 4) {
      auto c = Group::load(p + 2 * step);
      auto d = Group::load(p + 3 * step);
      for (std::size_t s = 1; s < from_.size(); ++s) {
        p = source(s) + i;
        a = Group::combine(op_, a, Group::load(p));
        b = Group::combine(op_, b, Group::load(p + step));
        c = Group::combine(op_, c, Group::load(p + 2 * step));
        d = Group::combine(op_, d, Group::load(p + 3 * step));
      }
      finish_(a);
      finish_(b);
      finish_(c);
      finish_(d);
      const auto ra = Group::round(a);
      const auto rb = Group::round(b);
      const auto rc = Group::round(c);
      const auto rd = Group::round(d);
      for (std::size_t k = 0; k < to_.size(); ++k) {
        T* const q = target(k) + i;
        put<kStream>(ra, q);
        put<kStream>(rb, q + step);
        put<kStream>(rc, q + 2 * step);
        put<kStream>(rd, q + 3 * step);
      }
    } else {
      for (std::size_t s = 1; s < from_.size(); ++s) {
        p = source(s) + i;
        a = Group::combine(op_, a, Group::load(p));
        b = Group::combine(op_, b, Group::load(p + step));
      }
      finish_(a);
      finish_(b);
      const auto ra = Group::round(a);
      const auto rb = Group::round(b);
      for (std::size_t k = 0; k < to_.size(); ++k) {
        T* const q = target(k) + i;
        put<kStream>(ra, q);
        put<kStream>(rb, q + step);
      }
    }
  }

  template <bool kStream, class Rounded>
  static HWY_INLINE void put(const Rounded& value, T* p) {
    if constexpr (kStream) {
      Group::stream_rounded(value, p);
    } else {
      Group::store_rounded(value, p);
    }
  }

  /// Handles less than a group with the same vector code, so that an element's result does not
  /// depend on where a piece was cut.
  HWY_NOINLINE void partial(std::size_t i, std::size_t count) const {
    if (count == 0) return;
    HWY_ALIGN T block[2 * HWY_MAX_BYTES / sizeof(T)] = {};
    const std::size_t step = Group::elements();
    while (count > 0) {
      const std::size_t n = std::min(count, step);
      std::memcpy(block, source(0) + i, n * sizeof(T));
      auto sum = Group::load(block);
      for (std::size_t s = 1; s < from_.size(); ++s) {
        std::memcpy(block, source(s) + i, n * sizeof(T));
        sum = Group::combine(op_, sum, Group::load(block));
      }
      finish_(sum);
      Group::store(sum, block);
      for (std::size_t k = 0; k < to_.size(); ++k) {
        std::memcpy(target(k) + i, block, n * sizeof(T));
      }
      i += n;
      count -= n;
    }
  }

  Op op_;
  Finish<Group> finish_;
  std::span<std::byte* const> to_;
  std::span<const std::byte* const> from_;
};

template <class Group>
void reduce_group(const ReduceAll& what, std::span<std::byte* const> to,
                  std::span<const std::byte* const> from, std::size_t count, bool stream) {
  const Finish<Group> finish(what.divisor, what.postscale);
  switch (what.op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return Loop<Group, Sum>(Sum(), finish, to, from).run(count, stream);
    case ReduceOp::min:
      return Loop<Group, Minimum>(Minimum(), finish, to, from).run(count, stream);
    case ReduceOp::max:
      return Loop<Group, Maximum>(Maximum(), finish, to, from).run(count, stream);
    case ReduceOp::product:
      if constexpr (Group::kFloating) {
        return Loop<Group, Product>(Product(), finish, to, from).run(count, stream);
      }
      return;  // reduce_in_blocks does these, since Highway cannot multiply lanes of every width
  }
}

void reduce_all_simd(const ReduceAll& what, std::span<std::byte* const> to,
                     std::span<const std::byte* const> from, std::size_t count, bool stream) {
  switch (what.dtype) {
    case DType::u8:
      return reduce_group<PlainGroup<std::uint8_t>>(what, to, from, count, stream);
    case DType::i8:
      return reduce_group<PlainGroup<std::int8_t>>(what, to, from, count, stream);
    case DType::i16:
      return reduce_group<PlainGroup<std::int16_t>>(what, to, from, count, stream);
    case DType::i32:
      return reduce_group<PlainGroup<std::int32_t>>(what, to, from, count, stream);
    case DType::i64:
      return reduce_group<PlainGroup<std::int64_t>>(what, to, from, count, stream);
    case DType::f16:
      return reduce_group<Float16Group>(what, to, from, count, stream);
    case DType::bf16:
      return reduce_group<BFloat16Group>(what, to, from, count, stream);
    case DType::f32:
      return reduce_group<PlainGroup<float>>(what, to, from, count, stream);
    case DType::f64:
      return reduce_group<PlainGroup<double>>(what, to, from, count, stream);
    case DType::boolean: {  // maximum is or, minimum is and, whatever byte represents true
      ReduceAll bytes = what;
      const bool any = what.op == ReduceOp::sum || what.op == ReduceOp::max;
      bytes.op = any || what.op == ReduceOp::average ? ReduceOp::max : ReduceOp::min;
      return reduce_group<PlainGroup<std::uint8_t>>(bytes, to, from, count, stream);
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
namespace {

HWY_EXPORT(reduce_all_simd);

/// Reduces block by block what the vector code does not: products, means and scales of integers.
void reduce_in_blocks(const ReduceAll& what, std::span<std::byte* const> to,
                      std::span<const std::byte* const> from, std::int64_t count) {
  constexpr std::int64_t kBlock = 256;
  const std::size_t size = size_of(what.dtype);
  const bool mean = what.divisor != 1 && is_integer(what.dtype);
  const int lanes = mean ? mean_lanes(what.dtype) : 1;
  alignas(64) std::array<std::int64_t, 2 * kBlock> sum{};
  alignas(64) std::array<std::int64_t, 2 * kBlock> next{};
  auto* const bytes = reinterpret_cast<std::byte*>(sum.data());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const std::size_t offset = static_cast<std::size_t>(begin) * size;
    const std::size_t length = static_cast<std::size_t>(n) * size;
    if (mean) {
      widen_for_mean(what.dtype, sum.data(), from[0] + offset, n, what.divisor, 1.0);
      for (std::size_t s = 1; s < from.size(); ++s) {
        widen_for_mean(what.dtype, next.data(), from[s] + offset, n, what.divisor, 1.0);
        reduce(DType::i64, ReduceOp::sum, sum.data(), sum.data(), next.data(), n * lanes);
      }
      narrow_mean(what.dtype, next.data(), sum.data(), n, what.divisor, what.postscale);
      std::memcpy(bytes, next.data(), length);
    } else {
      std::memcpy(bytes, from[0] + offset, length);
      for (std::size_t s = 1; s < from.size(); ++s) {
        reduce(what.dtype, what.op, bytes, bytes, from[s] + offset, n);
      }
      scale(what.dtype, bytes, bytes, n, what.postscale);
    }
    for (std::byte* const target : to) std::memcpy(target + offset, bytes, length);
  }
}

}  // namespace

void reduce_all(const ReduceAll& what, std::span<std::byte* const> to,
                std::span<const std::byte* const> from, std::int64_t count, Stores stores) {
  if (count <= 0 || to.empty()) return;
  const bool whole_lanes = what.op != ReduceOp::product || what.dtype == DType::boolean;
  const bool unfinished = what.divisor == 1 && what.postscale == 1.0;
  if (is_floating_point(what.dtype) || (whole_lanes && unfinished)) {
    HWY_DYNAMIC_DISPATCH(reduce_all_simd)
    (what, to, from, static_cast<std::size_t>(count), stores == Stores::streamed);
  } else {
    reduce_in_blocks(what, to, from, count);
  }
}

}  // namespace hvd::detail
#endif
