#include "table/share_plan.hpp"

#include <algorithm>
#include <numeric>

#include <hvd/core/internal/splitmix64.hpp>

#include "data/sample_order.hpp"

namespace hvd::detail {

std::vector<std::size_t> group_order(std::size_t groups, bool shuffled, std::uint64_t seed,
                                     std::size_t epoch) {
  std::vector<std::size_t> order(groups);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (shuffled) shuffle(order, seed, epoch);
  return order;
}

std::int64_t rows_of_rank(std::int64_t rows, int rank, int size) noexcept {
  return rows / size + (rank < rows % size ? 1 : 0);
}

std::vector<GroupSlice> share_of_rank(std::span<const std::size_t> order,
                                      std::span<const std::int64_t> chosen, int rank, int size) {
  const std::int64_t rows = std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0});
  const std::int64_t begin = rows / size * rank + std::min<std::int64_t>(rank, rows % size);
  const std::int64_t end = begin + rows_of_rank(rows, rank, size);
  std::vector<GroupSlice> slices;
  std::int64_t at = 0;  // the index of the group's first row
  for (const std::size_t group : order) {
    const std::int64_t first = std::max(begin, at);
    const std::int64_t last = std::min(end, at + chosen[group]);
    if (first < last) slices.push_back({group, first - at, last - first});
    at += chosen[group];
  }
  return slices;
}

std::int64_t steps_of(std::int64_t rows, int size, std::int64_t batch_size) noexcept {
  return (rows_of_rank(rows, 0, size) + batch_size - 1) / batch_size;
}

std::int64_t rows_before(std::int64_t step, std::int64_t rows_of_rank,
                         std::int64_t steps) noexcept {
  const std::int64_t left_over = rows_of_rank % steps * step;
  return rows_of_rank / steps * step + (left_over + steps - 1) / steps;
}

std::int64_t rows_of_step(std::int64_t rows, int size, std::int64_t batch_size,
                          std::int64_t step) noexcept {
  const std::int64_t steps = steps_of(rows, size, batch_size);
  const auto of_one = [&](std::int64_t of_rank) {
    return rows_before(step + 1, of_rank, steps) - rows_before(step, of_rank, steps);
  };
  const std::int64_t with_one_more = rows % size;
  return with_one_more * of_one(rows / size + 1) + (size - with_one_more) * of_one(rows / size);
}

std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) noexcept {
  return splitmix64(splitmix64(seed + kGoldenRatio64) + value * kGoldenRatio64);
}

}  // namespace hvd::detail
