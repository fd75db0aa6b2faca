#include "shuffle.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace hvd {

// std::shuffle and the distributions differ between standard libraries; the engine does not.
void shuffle(std::vector<std::size_t>& values, std::uint64_t seed, std::size_t epoch) {
  std::seed_seq seeds{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(epoch)};
  std::mt19937_64 random(seeds);
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random() % left]);
  }
}

std::optional<std::vector<std::size_t>> take_next(const std::vector<std::size_t>& order,
                                                  std::size_t& position, std::size_t count) {
  const std::size_t taken = std::min(count, order.size() - position);
  if (taken == 0) return std::nullopt;
  const auto first = order.begin() + static_cast<std::ptrdiff_t>(position);
  position += taken;
  return std::vector<std::size_t>(first, first + static_cast<std::ptrdiff_t>(taken));
}

}  // namespace hvd
