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

/// Describes up to `kMaxParts` copies. Each is done in units of 16 bytes, the last of which may be
/// shorter. The table is passed by value in the parameters of a launch, which may have 4 KiB on
/// every GPU and driver. So it needs no memory of its own and no copy before the kernel starts.
struct CopyTable {
  static constexpr std::uint32_t kMaxParts = 192;
  /// The first units of so many parts lie in one line of the device's cache for parameters.
  static constexpr std::uint32_t kGroup = 16;

  double factor;
  CopyUnit fill;  ///< stored where there is no source: one element, repeated
  std::uint32_t units;
  std::uint32_t parts;
  CopyElement element;
  // NOLINTBEGIN(*-avoid-c-arrays): std::array's members are not for a device
  std::uint8_t tail[kMaxParts];  ///< bytes of the last unit, 1 to 16
  std::byte* dst[kMaxParts];
  const std::byte* src[kMaxParts];          ///< null stores `fill`
  std::uint32_t first_unit[kMaxParts + 1];  ///< from `parts` on, `units`
  // NOLINTEND(*-avoid-c-arrays)
};
static_assert(sizeof(CopyTable) <= 4096);
static_assert(CopyTable::kMaxParts % CopyTable::kGroup == 0);

inline constexpr std::uint32_t kCopyUnit = 16;
inline constexpr std::uint32_t kCopyThreads = 256;
/// The units that a thread loads before it stores the first one, so that many loads are in flight
/// at a time.
inline constexpr std::uint32_t kUnitsPerThread = 4;
/// The units of a block: 16 KiB, whatever the sizes of the tensors.
inline constexpr std::uint32_t kCopyTile = kCopyThreads * kUnitsPerThread;

/// Returns the number of blocks that a table needs.
__host__ __device__ inline std::uint32_t copy_blocks(const CopyTable& table) {
  return (table.units + kCopyTile - 1) / kCopyTile;
}

/// Holds the source and the destination of a unit.
struct UnitCopy {
  std::byte* dst;
  const std::byte* src;
  std::uint32_t size;
};

/// Returns the part to which a unit belongs. No load depends on another one in the same loop, so
/// that the block waits for two loads from its parameters, which it reads for the first time. A
/// bisection would wait for eight.
__host__ __device__ inline std::uint32_t part_of_unit(const CopyTable& table, std::uint32_t unit) {
  std::uint32_t group = 0;
  for (std::uint32_t i = CopyTable::kGroup; i < CopyTable::kMaxParts; i += CopyTable::kGroup) {
    if (table.first_unit[i] <= unit) group += CopyTable::kGroup;
  }
  std::uint32_t part = group;
  for (std::uint32_t i = 1; i < CopyTable::kGroup; ++i) {
    if (table.first_unit[group + i] <= unit) ++part;
  }
  return part;
}

/// Does the same for a unit that belongs to a part in [low, high].
__host__ __device__ inline std::uint32_t part_of_unit(const CopyTable& table, std::uint32_t unit,
                                                      std::uint32_t low, std::uint32_t high) {
  while (low < high) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (table.first_unit[middle] <= unit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

__host__ __device__ inline UnitCopy copy_of_unit(const CopyTable& table, std::uint32_t unit,
                                                 std::uint32_t part) {
  const std::size_t at = static_cast<std::size_t>(unit - table.first_unit[part]) * kCopyUnit;
  const std::byte* const src = table.src[part];
  return {table.dst[part] + at, src == nullptr ? nullptr : src + at,
          unit + 1 == table.first_unit[part + 1] ? table.tail[part] : kCopyUnit};
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

/// Does the work of thread `thread` of block `block`. Neighbouring threads move neighbouring units.
__host__ __device__ inline void copy_tile(const CopyTable& table, std::uint32_t block,
                                          std::uint32_t thread) {
  const std::uint32_t begin = block * kCopyTile;
  const std::uint32_t left = table.units - begin;
  const std::uint32_t end = left < kCopyTile ? table.units : begin + kCopyTile;
  // These are the same for all threads of the block. Where one tensor fills the tile they are
  // equal, and the threads need not search.
  const std::uint32_t low = part_of_unit(table, begin);
  const std::uint32_t high = part_of_unit(table, end - 1);

  UnitCopy copies[kUnitsPerThread] = {};  // NOLINT(*-avoid-c-arrays)
  CopyUnit units[kUnitsPerThread] = {};   // NOLINT(*-avoid-c-arrays)
  static_assert(kUnitsPerThread == 4);
  four_times([&](std::uint32_t k) {
    const std::uint32_t unit = begin + k * kCopyThreads + thread;
    if (unit >= end) return;
    copies[k] = copy_of_unit(table, unit, part_of_unit(table, unit, low, high));
    units[k] = copies[k].src == nullptr ? table.fill : load_unit(copies[k].src, copies[k].size);
  });
  four_times([&](std::uint32_t k) {
    if (copies[k].size == 0) return;  // beyond the end
    if (copies[k].src != nullptr) scale_unit(units[k], table.element, table.factor);
    store_unit(copies[k].dst, units[k], copies[k].size);
  });
}

/// Queues the kernel on `stream`, which is of the current device (copy_kernel.cu).
[[nodiscard]] cudaError_t launch_copies(const CopyTable& table, cudaStream_t stream);

}  // namespace hvd::detail
