// Decides which rank reads which rows of an epoch. The functions depend on their arguments only, so
// all ranks decide alike without communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hvd::detail {

/// A part of the chosen rows of a row group: `count` rows from row `first` on.
struct GroupSlice {
  std::size_t group = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;

  friend bool operator==(const GroupSlice&, const GroupSlice&) = default;
};

/// Returns the row groups in the order of an epoch.
[[nodiscard]] std::vector<std::size_t> group_order(std::size_t groups, bool shuffled,
                                                   std::uint64_t seed, std::size_t epoch);

/// Returns the number of rows of a rank. The first `rows % size` ranks have one row more.
[[nodiscard]] std::int64_t rows_of_rank(std::int64_t rows, int rank, int size) noexcept;

/// Returns the rows of one rank. The chosen rows of all row groups, in this order, are divided into
/// one contiguous share for each rank. `chosen[g]` is the number of chosen rows of group g.
[[nodiscard]] std::vector<GroupSlice> share_of_rank(std::span<const std::size_t> order,
                                                    std::span<const std::int64_t> chosen, int rank,
                                                    int size);

/// Returns the number of steps in which all rows are read in batches of at most `batch_size`.
[[nodiscard]] std::int64_t steps_of(std::int64_t rows, int size, std::int64_t batch_size) noexcept;
/// Returns how many of a rank's rows come before a step, which is at most `steps`. All steps have
/// nearly the same number of rows. With full batches, the last step of an epoch could have very few
/// rows; its gradient would be mostly noise, but would have the same weight as the others.
[[nodiscard]] std::int64_t rows_before(std::int64_t step, std::int64_t rows_of_rank,
                                       std::int64_t steps) noexcept;
/// Returns the number of rows that all ranks read in a step.
[[nodiscard]] std::int64_t rows_of_step(std::int64_t rows, int size, std::int64_t batch_size,
                                        std::int64_t step) noexcept;

/// Returns a pseudorandom number that depends on both arguments, for seeds and for the choice of
/// rows (SplitMix64).
[[nodiscard]] std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) noexcept;

}  // namespace hvd::detail
