#include "reduce/integer_mean.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "reduce/scale.hpp"

namespace hvd::detail {
namespace {

/// Calls `fn` with a value of the element type.
template <class Fn>
void with_integer(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::u8:
      return fn(std::uint8_t{});
    case DType::i8:
      return fn(std::int8_t{});
    case DType::i16:
      return fn(std::int16_t{});
    case DType::i32:
      return fn(std::int32_t{});
    case DType::i64:
      return fn(std::int64_t{});
    default:
      return;
  }
}

/// Returns trunc((quotients · ranks + remainders) / ranks) without computing the sum, which may
/// overflow.
std::int64_t mean_of(std::int64_t quotients, std::int64_t remainders, std::int64_t ranks) {
  const std::int64_t mean = quotients + remainders / ranks;
  const std::int64_t rest = remainders % ranks;
  if (mean > 0 && rest < 0) return mean - 1;
  if (mean < 0 && rest > 0) return mean + 1;
  return mean;
}

}  // namespace

int mean_lanes(DType dtype) noexcept { return dtype == DType::i64 ? 2 : 1; }

void widen_for_mean(DType dtype, std::int64_t* wide, const void* src, std::int64_t count, int ranks,
                    double prescale) {
  with_integer(dtype, [&]<class T>(T) {
    constexpr std::int64_t kBlock = 64;
    T block[kBlock];
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t n = std::min(kBlock, count - begin);
      scale(dtype, block, static_cast<const std::byte*>(src) + begin * sizeof(T), n, prescale);
      for (std::int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<T, std::int64_t>) {
          wide[2 * (begin + i)] = block[i] / ranks;
          wide[2 * (begin + i) + 1] = block[i] % ranks;
        } else {
          wide[begin + i] = block[i];
        }
      }
    }
  });
}

void narrow_mean(DType dtype, void* dst, const std::int64_t* wide, std::int64_t count, int ranks,
                 double postscale) {
  with_integer(dtype, [&]<class T>(T) {
    constexpr std::int64_t kBlock = 64;
    T block[kBlock];
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t n = std::min(kBlock, count - begin);
      for (std::int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<T, std::int64_t>) {
          block[i] = mean_of(wide[2 * (begin + i)], wide[2 * (begin + i) + 1], ranks);
        } else {
          block[i] = static_cast<T>(wide[begin + i] / ranks);
        }
      }
      scale(dtype, static_cast<std::byte*>(dst) + begin * sizeof(T), block, n, postscale);
    }
  });
}

}  // namespace hvd::detail
