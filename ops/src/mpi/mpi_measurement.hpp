// How fast both ways are here, measured at start-up.
#pragma once

#include <chrono>
#include <vector>

#include <hvd/core/backend.hpp>

#include "mpi/mpi_choice.hpp"

namespace hvd {

struct MpiMeasurementOptions {
  /// Rank 0 leaves out what would probably end later than this.
  std::chrono::microseconds budget{50'000};
};

/// Rank 0's medians of a few calls, on every rank: they are broadcast. The most used sizes come
/// first. Collective; throws as the backends do.
[[nodiscard]] std::vector<MpiSample> measure_mpi(Backend& collective, Backend& ring, int rank,
                                                 int size, Deadline deadline,
                                                 const MpiMeasurementOptions& options = {});

}  // namespace hvd
