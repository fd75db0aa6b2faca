// Computes the order of a data set in an epoch, and the shard of it that a rank gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/serialize/archive.h>

namespace hvd::detail {

/// The last pass over the data that a sampler prepared.
struct PassOfEpoch {
  std::size_t epoch = 0;
  /// `reset` or `next` was called since construction, `set_epoch` or `load`.
  bool begun = false;

  /// Returns whether `reset` begins the epoch after `set`, the epoch of the sampler: the pass has
  /// begun, and `set_epoch` has not named another epoch since.
  [[nodiscard]] bool is_over(std::size_t set) const noexcept { return begun && epoch == set; }
};

/// Shuffles the values. The order depends on seed and epoch alone, on every machine and with every
/// standard library.
void shuffle(std::vector<std::size_t>& values, std::uint64_t seed, std::size_t epoch);

/// Returns the elements rank, rank + size, rank + 2·size, … of `order`, `count` in all. Indices
/// beyond the end of `order` continue at its beginning.
[[nodiscard]] std::vector<std::size_t> shard_of(const std::vector<std::size_t>& order, int rank,
                                                int size, std::size_t count);

/// Returns up to `count` values from `position` on and advances `position`, or returns nothing at
/// the end.
[[nodiscard]] std::optional<std::vector<std::size_t>> take_next(
    const std::vector<std::size_t>& order, std::size_t& position, std::size_t count);

/// Replaces a negative rank or size by that of the default context. Throws Errc::invalid_argument
/// when the rank is not below the size. `who` begins the message.
void resolve_rank(int& rank, int& size, std::string_view who);

/// Writes the data set size, the seed and the epoch of a sampler.
void write_sampler(torch::serialize::OutputArchive& archive, std::size_t dataset_size,
                   std::uint64_t seed, std::size_t epoch);
/// Returns the saved epoch. Throws Errc::invalid_argument when the saved data set size or seed is
/// another one.
[[nodiscard]] std::size_t read_sampler(torch::serialize::InputArchive& archive,
                                       std::size_t dataset_size, std::uint64_t seed,
                                       std::string_view who);
[[nodiscard]] std::int64_t read_integer(torch::serialize::InputArchive& archive, const char* key);

}  // namespace hvd::detail
