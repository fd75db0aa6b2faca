// Measures the cost of negotiation: small blocking allreduces and the gradients of one step,
// negotiated each time and from a frozen schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

#include "options.hpp"

namespace hvd::bench {

/// Times are those of the slowest rank, in microseconds per step.
struct NegotiationRow {
  std::string name;
  int ranks = 1;
  std::int64_t tensors = 1;  ///< in one step
  std::size_t bytes = 0;     ///< in one step
  bool frozen = false;
  double p50_us = 0;
  double p99_us = 0;
  double control_messages_per_step = 0;  ///< sent and received by rank 0
  int iterations = 0;
  bool froze = false;  ///< the measured steps ran from a frozen schedule
};

/// Collective over the ranks that `config` describes. Creates contexts of its own, one after the
/// other. Returns the same rows on every rank.
[[nodiscard]] std::vector<NegotiationRow> measure_negotiation(Config config,
                                                              const Options& options);

[[nodiscard]] std::string negotiation_header();
[[nodiscard]] std::string negotiation_row(const NegotiationRow& row);
/// Writes the rows as JSON. Throws std::runtime_error naming the file.
void write_negotiation(const std::string& path, const std::vector<NegotiationRow>& rows);

/// Returns the number of elements of each of ResNet-50's 161 gradients (He et al. 2016) in the
/// order of the backward pass, 25.6 M in all.
[[nodiscard]] std::vector<std::int64_t> resnet50_gradients();

}  // namespace hvd::bench
