#include "data/sample_order.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <torch/serialize.h>

#include <hvd/hvd.hpp>

namespace hvd::detail {

// This uses only the random engine, because std::shuffle and the distributions differ between
// standard libraries.
void shuffle(std::vector<std::size_t>& values, std::uint64_t seed, std::size_t epoch) {
  std::seed_seq seeds{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(epoch)};
  std::mt19937_64 random(seeds);
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random() % left]);
  }
}

std::vector<std::size_t> shard_of(const std::vector<std::size_t>& order, int rank, int size,
                                  std::size_t count) {
  std::vector<std::size_t> shard;
  shard.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t index = i * static_cast<std::size_t>(size) + static_cast<std::size_t>(rank);
    shard.push_back(order[index % order.size()]);
  }
  return shard;
}

std::optional<std::vector<std::size_t>> take_next(const std::vector<std::size_t>& order,
                                                  std::size_t& position, std::size_t count) {
  const std::size_t taken = std::min(count, order.size() - position);
  if (taken == 0) return std::nullopt;
  const auto first = order.begin() + static_cast<std::ptrdiff_t>(position);
  position += taken;
  return std::vector<std::size_t>(first, first + static_cast<std::ptrdiff_t>(taken));
}

void resolve_rank(int& rank, int& size, std::string_view who) {
  if (rank < 0) rank = hvd::rank();
  if (size < 0) size = hvd::size();
  if (size < 1 || rank >= size) {
    throw Error(Errc::invalid_argument, fmt::format("{}: rank {} of {} ranks", who, rank, size));
  }
}

void write_sampler(torch::serialize::OutputArchive& archive, std::size_t dataset_size,
                   std::uint64_t seed, std::size_t epoch) {
  archive.write("dataset_size", static_cast<std::int64_t>(dataset_size));
  archive.write("seed", static_cast<std::int64_t>(seed));
  archive.write("epoch", static_cast<std::int64_t>(epoch));
}

std::size_t read_sampler(torch::serialize::InputArchive& archive, std::size_t dataset_size,
                         std::uint64_t seed, std::string_view who) {
  if (static_cast<std::size_t>(read_integer(archive, "dataset_size")) != dataset_size ||
      static_cast<std::uint64_t>(read_integer(archive, "seed")) != seed) {
    throw Error(Errc::invalid_argument,
                fmt::format("{}: the saved state is of another data set or seed", who));
  }
  const std::int64_t epoch = read_integer(archive, "epoch");
  if (epoch < 0) {
    throw Error(Errc::invalid_argument, fmt::format("{}: the saved state is damaged", who));
  }
  return static_cast<std::size_t>(epoch);
}

std::int64_t read_integer(torch::serialize::InputArchive& archive, const char* key) {
  c10::IValue value;
  archive.read(key, value);
  return value.toInt();
}

}  // namespace hvd::detail
