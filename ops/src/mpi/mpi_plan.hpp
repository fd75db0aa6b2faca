// MPI's own collective or the ring over MPI's messages, by operation and size.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include <hvd/core/backend.hpp>

#include "cost/choose.hpp"
#include "cost/measure.hpp"
#include "cost/plan.hpp"

namespace hvd {

/// The ways of the operations that have two. Pure.
class MpiWays {
 public:
  /// MPI's own always.
  MpiWays() : MpiWays(Plan()) {}
  explicit MpiWays(const Plan& plan);

  [[nodiscard]] Way of(OpKind kind, std::size_t bytes) const noexcept;

 private:
  std::array<Ways, 4> ways_;
};

/// MPI's own for everything.
[[nodiscard]] Plan default_mpi_plan();

/// In the order of the samples' times.
inline constexpr std::array<ContenderWay, 2> kMpiWays{{{Way::collective, 0}, {Way::ring, 0}}};

/// Rank 0's times, on every rank. Collective.
[[nodiscard]] std::vector<Sample> measure_mpi(Backend& collective, Backend& ring,
                                              const Measurement& options);
[[nodiscard]] Plan mpi_plan(std::span<const Sample> samples);

}  // namespace hvd
