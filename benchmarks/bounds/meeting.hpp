// Synchronises ranks through counters in shared memory, one cache line for each rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "driver/library.hpp"

namespace hvd::bounds {

constexpr std::size_t kMostRanks = 16;

/// Small data, and the number of the operation it belongs to, in one cache line.
struct alignas(64) Line {
  static constexpr std::size_t kFloats = 12;
  std::atomic<std::uint64_t> number{0};
  float data[kFloats] = {};
};

/// The counters that one rank publishes. They only grow.
struct alignas(64) Progress {
  static constexpr std::size_t kExchange = 1024;
  alignas(64) std::atomic<std::uint64_t> staged{0};
  alignas(64) std::atomic<std::uint64_t> arrived{0};
  alignas(64) std::atomic<std::uint64_t> reduced{0};
  alignas(64) std::atomic<std::uint64_t> met{0};
  Line lines[2];
  alignas(64) double exchange[kExchange] = {};
};

/// One rank's view of the `Progress` of all ranks. Waits spin for a short time if every rank has a
/// core of its own, and yield otherwise. They have no deadline, because the process that forked the
/// ranks kills them all when one dies or the time is over.
class Meeting {
 public:
  Meeting(std::span<Progress> ranks, std::size_t rank, bool yields)
      : ranks_(ranks), rank_(rank), yields_(yields) {}

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
  [[nodiscard]] Progress& own() const noexcept { return ranks_[rank_]; }
  [[nodiscard]] Progress& of(std::size_t rank) const noexcept { return ranks_[rank]; }

  void wait(const std::atomic<std::uint64_t>& counter, std::uint64_t least) const;
  /// Waits until this counter of every other rank is at least `least`.
  void wait_all(std::atomic<std::uint64_t> Progress::*counter, std::uint64_t least) const;
  void barrier();
  /// Combines the values element by element over all ranks, in place.
  void combine(std::span<double> values, peers::Combine how);

 private:
  std::span<Progress> ranks_;
  std::size_t rank_;
  bool yields_;
  std::uint64_t meetings_ = 0;
};

}  // namespace hvd::bounds
