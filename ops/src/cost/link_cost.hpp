// What a message between two ranks costs, and what follows from it. Pure but for the measuring.
#pragma once

#include <cstddef>

#include <hvd/core/backend.hpp>

#include "cost/ways.hpp"

namespace hvd {

/// A message of b bytes takes latency + b / bandwidth (Hockney 1994).
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 0;
};

/// From two allreduces over `group`, of a few bytes and of some hundred KiB. Every rank has numbers
/// of its own. `decides` on the group's rank 0. Collective among its `ranks`, two or more.
[[nodiscard]] LinkCost measure_link(Backend& group, int ranks, bool decides, Deadline deadline);

/// Doubling or ring, by the bytes that a rank receives by doubling: where both would take as long,
///   ceil(log2 n)·latency + bytes/bandwidth = 2(n-1)·latency + 2·bytes/(n·bandwidth),
/// rounded down to a power of two.
[[nodiscard]] Ways ring_ways(const LinkCost& cost, int ranks);

/// Bytes per round of a pipeline over so many hosts: so long that what a round costs beside its
/// bytes is a small part of it. A power of two.
[[nodiscard]] std::size_t segment_for(const LinkCost& cost, int hosts);

}  // namespace hvd
