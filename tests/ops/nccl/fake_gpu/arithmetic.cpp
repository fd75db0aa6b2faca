#include "fake_gpu/arithmetic.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace hvd::test::fake_gpu {
namespace {

// The type in which an element is computed: float for 16-bit floats, otherwise its own type.
template <class T>
struct Wide {
  using Type = T;
  static T up(T value) { return value; }
  static T down(T value) { return value; }
};
template <>
struct Wide<__half> {
  using Type = float;
  static float up(__half value) { return __half2float(value); }
  static __half down(float value) { return __float2half(value); }
};
template <>
struct Wide<__nv_bfloat16> {
  using Type = float;
  static float up(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __nv_bfloat16 down(float value) { return __float2bfloat16(value); }
};

// Lets integers wrap as on the device, without undefined behaviour.
template <class V, class F>
V wrapping(V a, V b, F f) {
  if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  } else {
    return f(a, b);
  }
}

template <class V>
V combine(ncclRedOp_t op, V a, V b) {
  switch (op) {
    case ncclProd:
      return wrapping(a, b, [](auto x, auto y) { return x * y; });
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
}

/// Returns how many elements NCCL's kernel for one rank multiplies. Before version 2.29.7 it
/// divides them among blocks of whole 16 bytes, and rounds the share of a block down before it
/// rounds up to these (`oneRankReduce` of NCCL's onerank.cu), so that it may miss the last
/// elements.
std::size_t multiplied_by_one_rank(std::size_t count, std::size_t element) {
  constexpr std::size_t kMostBlocks = 32;
  constexpr std::size_t kBlockBytes = 16 << 10;
  const std::size_t pack = 16 / element;
  const std::size_t blocks =
      std::clamp<std::size_t>((count * element + kBlockBytes - 1) / kBlockBytes, 1, kMostBlocks);
  const std::size_t share = (count / blocks + pack - 1) / pack * pack;
  return std::min(count, blocks * share);
}

/// Elements beyond those of the result keep their values.
template <class T>
std::vector<std::byte> reduce_as(const std::vector<const void*>& inputs, std::size_t count,
                                 const Reduction& reduction) {
  using V = typename Wide<T>::Type;
  std::vector<std::byte> result(count * sizeof(T));
  const auto rounded = [](V value) { return Wide<T>::up(Wide<T>::down(value)); };
  // NCCL computes an average of floating point as a sum of inputs times 1/n. It rounds the factor,
  // each product and each partial sum to the type, and so does this function.
  constexpr bool kIsFloat = std::is_floating_point_v<V>;
  std::optional<V> factor;
  if (reduction.premultiply) factor = rounded(static_cast<V>(*reduction.premultiply));
  if (kIsFloat && reduction.op == ncclAvg) {
    factor = rounded(static_cast<V>(1.0 / static_cast<double>(inputs.size())));
  }
  const auto input = [&](std::size_t rank, std::size_t i) {
    T element;
    std::memcpy(&element, static_cast<const std::byte*>(inputs[rank]) + i * sizeof(T), sizeof(T));
    const V value = Wide<T>::up(element);
    return factor ? rounded(static_cast<V>(*factor * value)) : value;
  };
  for (std::size_t i = 0; i < count; ++i) {
    V value = input(0, i);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      value = rounded(combine(reduction.op, value, input(rank, i)));
    }
    if (!kIsFloat && reduction.op == ncclAvg)
      value = static_cast<V>(value / static_cast<V>(inputs.size()));
    const T element = Wide<T>::down(value);
    std::memcpy(result.data() + i * sizeof(T), &element, sizeof(T));
  }
  if (factor && inputs.size() == 1) {
    result.resize(multiplied_by_one_rank(count, sizeof(T)) * sizeof(T));
  }
  return result;
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

double to_double(const void* element, ncclDataType_t type) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof value);
    return static_cast<double>(Wide<T>::up(value));
  };
  switch (type) {
    case ncclFloat16:
      return as(__half{});
    case ncclBfloat16:
      return as(__nv_bfloat16{});
    case ncclFloat32:
      return as(float{});
    default:
      return as(double{});
  }
}

std::vector<std::byte> reduce(const std::vector<const void*>& inputs, std::size_t count,
                              ncclDataType_t type, const Reduction& reduction) {
  switch (type) {
    case ncclInt8:
      return reduce_as<std::int8_t>(inputs, count, reduction);
    case ncclUint8:
      return reduce_as<std::uint8_t>(inputs, count, reduction);
    case ncclInt32:
      return reduce_as<std::int32_t>(inputs, count, reduction);
    case ncclInt64:
      return reduce_as<std::int64_t>(inputs, count, reduction);
    case ncclFloat16:
      return reduce_as<__half>(inputs, count, reduction);
    case ncclBfloat16:
      return reduce_as<__nv_bfloat16>(inputs, count, reduction);
    case ncclFloat32:
      return reduce_as<float>(inputs, count, reduction);
    default:
      return reduce_as<double>(inputs, count, reduction);
  }
}

}  // namespace hvd::test::fake_gpu
