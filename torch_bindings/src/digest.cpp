#include "digest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hvd {

void Digest::add(std::uint64_t value) noexcept {
  // The finaliser of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
  // generators") over the state so far and the next word: bijective in each of the two.
  std::uint64_t z = std::rotl(state_, 5) + value + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  state_ = z ^ (z >> 31);
}

void Digest::add(std::string_view text) noexcept {
  add_elements(std::as_bytes(std::span(text)), 1);
}

void Digest::add_elements(std::span<const std::byte> bytes, std::size_t element_size) noexcept {
  add(bytes.size());
  while (!bytes.empty()) {
    const std::size_t taken = std::min(bytes.size(), sizeof(std::uint64_t));
    std::byte word[sizeof(std::uint64_t)]{};
    std::memcpy(word, bytes.data(), taken);
    // The word is the same number everywhere: first element lowest, each in little-endian order.
    if constexpr (std::endian::native == std::endian::big) {
      for (std::size_t at = 0; at < taken; at += element_size) {
        std::reverse(word + at, word + at + element_size);
      }
      std::reverse(word, word + sizeof word);
    }
    std::uint64_t value = 0;
    std::memcpy(&value, word, sizeof value);
    add(value);
    bytes = bytes.subspan(taken);
  }
  static_cast<void>(element_size);
}

}  // namespace hvd
