// Mixes the bits of numbers, for hashes that only have to be spread well and for reproducible
// pseudorandom numbers.
#pragma once

#include <cstdint>

namespace hvd {

/// Is 2⁶⁴ divided by the golden ratio, made odd. It is the step between two states of SplitMix64,
/// and a good factor for a hash.
inline constexpr std::uint64_t kGoldenRatio64 = 0x9e3779b97f4a7c15;

/// Applies the finaliser of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
/// number generators"), which is a bijection.
[[nodiscard]] constexpr std::uint64_t splitmix64(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace hvd
