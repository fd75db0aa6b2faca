// Times an allreduce of floats at one size, by the rules of hvd_bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "library.hpp"
#include "options.hpp"

namespace hvd::peers {

/// Holds times in microseconds. An iteration's time is that of the slowest rank.
struct Row {
  std::size_t bytes = 0;
  std::string way;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  std::int64_t wrong = 0;  ///< wrong elements over all ranks, in a run before and a run after
  int iterations = 0;
};

/// Collective. Returns the same row on every rank, or nothing when `options.way` does not apply to
/// the size.
[[nodiscard]] std::optional<Row> measure(Library& library, const Options& options,
                                         std::size_t bytes);

/// Returns how many buffers of `bytes` the iterations use in turn. Together they have 64 MiB, but
/// there are at most 65,536.
[[nodiscard]] std::size_t rotation(std::size_t bytes);

}  // namespace hvd::peers
