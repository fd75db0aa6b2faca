// Hashes the state of a world to 128 bits, so that the visited set holds a hash and not a state.
#pragma once

#include <bit>
#include <cstdint>

#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::explore {

struct StateHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const StateHash&, const StateHash&) = default;
};

/// Mixes words in order. Both halves depend on every word, in different ways.
class StateHasher {
 public:
  void word(std::uint64_t word) noexcept {
    hash_.high = splitmix64(hash_.high ^ word);
    hash_.low = splitmix64(std::rotl(hash_.low, 23) + word * kGoldenRatio64);
  }
  void add(const StateHash& hash) noexcept {
    word(hash.high);
    word(hash.low);
  }
  [[nodiscard]] const StateHash& hash() const noexcept { return hash_; }

 private:
  StateHash hash_{0x243f6a8885a308d3, 0x13198a2e03707344};  // digits of pi
};

}  // namespace hvd::explore
