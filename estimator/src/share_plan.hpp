// Who reads which rows of an epoch. Pure: the same on every rank, without a word between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hvd {

/// Of the chosen rows of a row group, `count` from the `first` on.
struct GroupSlice {
  std::size_t group = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;

  friend bool operator==(const GroupSlice&, const GroupSlice&) = default;
};

/// Row groups in the order of an epoch.
[[nodiscard]] std::vector<std::size_t> group_order(std::size_t groups, bool shuffled,
                                                   std::uint64_t seed, std::size_t epoch);

/// The first `rows % size` ranks have one row more.
[[nodiscard]] std::int64_t rows_of_rank(std::int64_t rows, int rank, int size) noexcept;

/// The rows of one rank: of the row groups laid one after another, those from where the shares of
/// the ranks before it end. `chosen[g]` is how many rows group g has.
[[nodiscard]] std::vector<GroupSlice> share_of_rank(std::span<const std::size_t> order,
                                                    std::span<const std::int64_t> chosen, int rank,
                                                    int size);

/// Enough for all rows in batches of at most `batch_size`.
[[nodiscard]] std::int64_t steps_of(std::int64_t rows, int size, std::int64_t batch_size) noexcept;
/// Of a rank's rows, those that come before a step, which is at most `steps`. Steps have nearly
/// equally many: one of the few rows that full batches leave over would be as long a step as the
/// others, along a gradient that is mostly noise, and the last of its epoch.
[[nodiscard]] std::int64_t rows_before(std::int64_t step, std::int64_t rows_of_rank,
                                       std::int64_t steps) noexcept;
/// Of all ranks, in a step.
[[nodiscard]] std::int64_t rows_of_step(std::int64_t rows, int size, std::int64_t batch_size,
                                        std::int64_t step) noexcept;

/// A number that looks drawn at random, of two others: for seeds and for the choice of rows.
[[nodiscard]] std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) noexcept;

}  // namespace hvd
