// Describes many copies that one kernel makes: the table of the kernel, and the work of each of its
// threads.
//
// All that a thread computes is here, for device and host, so that tests without a GPU run the same
// index arithmetic. The file is C++17 without hvd's own headers, since nvcc compiles it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

namespace hvd::detail {

/// Names the type as which elements are multiplied. `bytes` are not multiplied.
enum class CopyElement : std::uint8_t { bytes, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

/// Holds a unit in registers, as four little-endian words.
struct CopyUnit {
  std::uint32_t word[4];  // NOLINT(*-avoid-c-arrays)
};

inline constexpr std::uint32_t kCopyUnit = 16;
inline constexpr std::uint32_t kCopyThreads = 256;
/// The units that a thread loads before it stores the first one, so that many loads are in flight
/// at a time.
inline constexpr std::uint32_t kUnitsPerThread = 4;
/// The bytes of a block: 16 KiB of one part, or what is left of it.
inline constexpr std::uint32_t kCopyTile = kCopyThreads * kUnitsPerThread * kCopyUnit;

/// Describes up to `kMaxParts` copies. The table is passed by value in the parameters of a launch,
/// which may have 4 KiB on every GPU and driver. So it needs no memory of its own and no copy
/// before the kernel starts.
struct CopyTable {
  static constexpr std::uint32_t kMaxParts = 168;
  static constexpr std::uint32_t kGroup =
      12;  ///< parts in a group, near the square root of kMaxParts

  double factor;
  CopyUnit fill;  ///< stored where there is no source: one element, repeated
  std::uint32_t tiles;
  std::uint32_t parts;
  CopyElement element;
  // One side may hold f16 or bf16, as `element` says, while the other one holds f32.
  bool src_is_half;
  bool dst_is_half;
  // NOLINTBEGIN(*-avoid-c-arrays): std::array's members are not for a device
  std::byte* dst[kMaxParts];
  const std::byte* src[kMaxParts];  ///< null stores `fill`
  std::uint32_t size[kMaxParts];    ///< bytes, those of f32 if one side is half as long; not 0
  /// The index of the part's first tile, counted over all parts. Entries from `parts` on hold
  /// `tiles`, so that the search never chooses them.
  std::uint32_t first_tile[kMaxParts];
  // NOLINTEND(*-avoid-c-arrays)
};
static_assert(sizeof(CopyTable) <= 4096);
static_assert(CopyTable::kMaxParts % CopyTable::kGroup == 0);

[[nodiscard]] inline std::uint32_t tiles_of(std::uint32_t size) {
  return size / kCopyTile + (size % kCopyTile == 0 ? 0 : 1);
}

/// Returns the part of a tile. The loads of one loop are independent, so the search waits for the
/// table twice. A bisection would wait eight times, and a block's first reads miss the cache.
__host__ __device__ inline std::uint32_t part_of_tile(const CopyTable& table, std::uint32_t tile) {
  std::uint32_t group = 0;
  for (std::uint32_t i = CopyTable::kGroup; i < CopyTable::kMaxParts; i += CopyTable::kGroup) {
    if (table.first_tile[i] <= tile) group += CopyTable::kGroup;
  }
  std::uint32_t part = group;
  for (std::uint32_t i = 1; i < CopyTable::kGroup; ++i) {
    if (table.first_tile[group + i] <= tile) ++part;
  }
  return part;
}

/// Calls f(0), f(1), f(2) and f(3): a loop that is certain to be unrolled, so that units stay in
/// registers.
template <class F>
__host__ __device__ inline void four_times(F f) {
  f(0U);
  f(1U);
  f(2U);
  f(3U);
}

/// These words may alias any type. The device moves a Word128 with one instruction.
struct __attribute__((may_alias, aligned(16))) Word128 {
  std::uint32_t x, y, z, w;
};
using Word32 __attribute__((may_alias)) = std::uint32_t;

__host__ __device__ inline bool is_multiple(const void* pointer, std::uint32_t size,
                                            std::uint32_t of) {
  return (reinterpret_cast<std::uintptr_t>(pointer) | size) % of == 0;
}

__host__ __device__ inline CopyUnit load_unit(const std::byte* src, std::uint32_t size) {
  if (is_multiple(src, size, 16)) {
    const Word128 words = *reinterpret_cast<const Word128*>(src);
    return {{words.x, words.y, words.z, words.w}};
  }
  CopyUnit unit{};
  if (is_multiple(src, size, 4)) {
    const auto* const words = reinterpret_cast<const Word32*>(src);
    four_times([&](std::uint32_t i) {
      if (i * 4 < size) unit.word[i] = words[i];
    });
    return unit;
  }
  four_times([&](std::uint32_t i) {
    four_times([&](std::uint32_t j) {
      const std::uint32_t at = i * 4 + j;
      if (at < size) unit.word[i] |= static_cast<std::uint32_t>(src[at]) << (j * 8);
    });
  });
  return unit;
}

__host__ __device__ inline void store_unit(std::byte* dst, const CopyUnit& unit,
                                           std::uint32_t size) {
  if (is_multiple(dst, size, 16)) {
    *reinterpret_cast<Word128*>(dst) =
        Word128{unit.word[0], unit.word[1], unit.word[2], unit.word[3]};
    return;
  }
  if (is_multiple(dst, size, 4)) {
    auto* const words = reinterpret_cast<Word32*>(dst);
    four_times([&](std::uint32_t i) {
      if (i * 4 < size) words[i] = unit.word[i];
    });
    return;
  }
  four_times([&](std::uint32_t i) {
    four_times([&](std::uint32_t j) {
      const std::uint32_t at = i * 4 + j;
      if (at < size) dst[at] = static_cast<std::byte>(unit.word[i] >> (j * 8));
    });
  });
}

__host__ __device__ inline float scaled(float value, double factor) {
  return value * static_cast<float>(factor);
}
__host__ __device__ inline double scaled(double value, double factor) { return value * factor; }
__host__ __device__ inline __half scaled(__half value, double factor) {
  return __float2half_rn(scaled(__half2float(value), factor));
}
__host__ __device__ inline __nv_bfloat16 scaled(__nv_bfloat16 value, double factor) {
  return __float2bfloat16_rn(scaled(__bfloat162float(value), factor));
}
/// Scales an integer in double, toward zero and clamped to its range, like the host; NaN becomes 0.
template <class T>
__host__ __device__ inline T scaled(T value, double factor) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  // For i64 this is 2^63, the first double that is too large.
  constexpr double kAbove = static_cast<double>(kMax / 2 + 1) * 2;
  const double product = static_cast<double>(value) * factor;
  if (!(product == product)) return 0;
  if (product <= static_cast<double>(kMin)) return kMin;
  if (product >= kAbove) return kMax;
  return static_cast<T>(product);
}

/// Scales the elements in `bits`.
template <class T, class Bits>
__host__ __device__ inline Bits scaled_bits(Bits bits, double factor) {
  T elements[sizeof(Bits) / sizeof(T)];  // NOLINT(*-avoid-c-arrays)
  std::memcpy(static_cast<void*>(elements), &bits, sizeof bits);
  for (T& element : elements) element = scaled(element, factor);
  std::memcpy(&bits, elements, sizeof bits);
  return bits;
}

template <class T>
__host__ __device__ inline void scale_unit_as(CopyUnit& unit, double factor) {
  if constexpr (sizeof(T) == 8) {
    const auto pair = [&](std::uint32_t& low, std::uint32_t& high) {
      const std::uint64_t both =
          scaled_bits<T>(static_cast<std::uint64_t>(high) << 32U | low, factor);
      low = static_cast<std::uint32_t>(both);
      high = static_cast<std::uint32_t>(both >> 32U);
    };
    pair(unit.word[0], unit.word[1]);
    pair(unit.word[2], unit.word[3]);
  } else {
    four_times([&](std::uint32_t i) { unit.word[i] = scaled_bits<T>(unit.word[i], factor); });
  }
}

__host__ __device__ inline void scale_unit(CopyUnit& unit, CopyElement element, double factor) {
  switch (element) {
    case CopyElement::bytes:
      return;
    case CopyElement::u8:
      return scale_unit_as<std::uint8_t>(unit, factor);
    case CopyElement::i8:
      return scale_unit_as<std::int8_t>(unit, factor);
    case CopyElement::i16:
      return scale_unit_as<std::int16_t>(unit, factor);
    case CopyElement::i32:
      return scale_unit_as<std::int32_t>(unit, factor);
    case CopyElement::i64:
      return scale_unit_as<std::int64_t>(unit, factor);
    case CopyElement::f16:
      return scale_unit_as<__half>(unit, factor);
    case CopyElement::bf16:
      return scale_unit_as<__nv_bfloat16>(unit, factor);
    case CopyElement::f32:
      return scale_unit_as<float>(unit, factor);
    case CopyElement::f64:
      return scale_unit_as<double>(unit, factor);
  }
}

template <class T>
__host__ __device__ inline std::uint32_t half_bits(T value) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
template <class T>
__host__ __device__ inline T half_from(std::uint32_t bits) {
  const auto low = static_cast<std::uint16_t>(bits);
  T value;
  std::memcpy(static_cast<void*>(&value), &low, sizeof low);
  return value;
}

/// Rounds four f32 to f16 or bf16, which fill the first half of the result.
__host__ __device__ inline CopyUnit narrowed(const CopyUnit& unit, CopyElement element) {
  CopyUnit result{};
  four_times([&](std::uint32_t i) {
    float value = 0;
    std::memcpy(&value, &unit.word[i], sizeof value);
    const std::uint32_t bits = element == CopyElement::f16 ? half_bits(__float2half_rn(value))
                                                           : half_bits(__float2bfloat16_rn(value));
    result.word[i / 2] |= bits << (i % 2 * 16);
  });
  return result;
}

/// Returns the first four f16 or bf16 as f32.
__host__ __device__ inline CopyUnit widened(const CopyUnit& unit, CopyElement element) {
  CopyUnit result{};
  four_times([&](std::uint32_t i) {
    const std::uint32_t bits = unit.word[i / 2] >> (i % 2 * 16);
    const float value = element == CopyElement::f16
                            ? __half2float(half_from<__half>(bits))
                            : __bfloat162float(half_from<__nv_bfloat16>(bits));
    std::memcpy(&result.word[i], &value, sizeof value);
  });
  return result;
}

/// Does the work of thread `thread` of the block that copies a tile. Neighbouring threads move
/// neighbouring units, of which the last of a part may be shorter.
__host__ __device__ inline void copy_tile(const CopyTable& table, std::uint32_t tile,
                                          std::uint32_t thread) {
  const std::uint32_t part = part_of_tile(table, tile);
  const std::size_t begin = static_cast<std::size_t>(tile - table.first_tile[part]) * kCopyTile;
  const std::uint32_t left = table.size[part] - static_cast<std::uint32_t>(begin);
  const bool has_source = table.src[part] != nullptr;
  const auto offset_of = [=](std::uint32_t k) { return (k * kCopyThreads + thread) * kCopyUnit; };
  const auto size_at = [=](std::uint32_t offset) {
    return left - offset < kCopyUnit ? left - offset : kCopyUnit;
  };

  const std::uint32_t src_shift = table.src_is_half ? 1 : 0;
  const std::uint32_t dst_shift = table.dst_is_half ? 1 : 0;

  CopyUnit units[kUnitsPerThread] = {};  // NOLINT(*-avoid-c-arrays)
  static_assert(kUnitsPerThread == 4);
  four_times([&](std::uint32_t k) {
    const std::uint32_t offset = offset_of(k);
    if (offset >= left) return;
    units[k] = has_source ? load_unit(table.src[part] + ((begin + offset) >> src_shift),
                                      size_at(offset) >> src_shift)
                          : table.fill;
  });
  four_times([&](std::uint32_t k) {
    const std::uint32_t offset = offset_of(k);
    if (offset >= left) return;
    if (has_source) {
      if (table.dst_is_half) units[k] = narrowed(units[k], table.element);
      scale_unit(units[k], table.element, table.factor);
      if (table.src_is_half) units[k] = widened(units[k], table.element);
    }
    store_unit(table.dst[part] + ((begin + offset) >> dst_shift), units[k],
               size_at(offset) >> dst_shift);
  });
}

/// Loads the kernel for the current device (copy_kernel.cu). Otherwise its first launch does, and
/// CUDA may then wait for kernels that run.
[[nodiscard]] cudaError_t load_copies();
/// The architectures with machine code of the kernel, as 700 for 7.0, in ascending order.
[[nodiscard]] std::vector<int> copy_architectures();
/// Queues the kernel on `stream`, which is of the current device (copy_kernel.cu).
[[nodiscard]] cudaError_t launch_copies(const CopyTable& table, cudaStream_t stream);

}  // namespace hvd::detail
