// Times an allreduce of floats at one size, by the rules of hvd_bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "library.hpp"
#include "options.hpp"

namespace hvd::peers {

/// An iteration's time is that of the slowest rank. Microseconds.
struct Row {
  std::size_t bytes = 0;
  std::string way;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  std::int64_t wrong = 0;  ///< elements over all ranks, in one run before the timed ones, one after
  int iterations = 0;
};

/// Collective; the same row on every rank. Nothing when `options.way` does not apply to the size.
[[nodiscard]] std::optional<Row> measure(Library& library, const Options& options,
                                         std::size_t bytes);

/// How many buffers of `bytes` iterations take in turn: 64 MiB together, at most 65,536.
[[nodiscard]] std::size_t rotation(std::size_t bytes);

}  // namespace hvd::peers
