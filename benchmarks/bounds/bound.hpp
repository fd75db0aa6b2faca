// Declares the interface of both bounds to the driver.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "driver/library.hpp"
#include "meeting.hpp"

namespace hvd::bounds {

/// A rank's part of `count` floats. Parts begin at multiples of a cache line.
struct Part {
  std::size_t begin = 0;
  std::size_t count = 0;
};

[[nodiscard]] inline Part part_of(std::size_t count, std::size_t rank, std::size_t ranks) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  const std::size_t share = (count / ranks + kLine - 1) / kLine * kLine;
  const std::size_t begin = std::min(rank * share, count);
  const std::size_t end = rank + 1 == ranks ? count : std::min(begin + share, count);
  return {begin, end - begin};
}

class Bound : public peers::Library {
 public:
  explicit Bound(Meeting meeting) : meeting_(meeting) {}
  [[nodiscard]] int rank() const override { return static_cast<int>(meeting_.rank()); }
  [[nodiscard]] int ranks() const override { return static_cast<int>(meeting_.size()); }
  void barrier() override { meeting_.barrier(); }
  void combine(std::span<double> values, peers::Combine how) override {
    meeting_.combine(values, how);
  }

 protected:
  /// Sums at most `Line::kFloats` floats, which travel in the cache line of their flag. Two lines
  /// are used alternately: when a rank writes one, all other ranks have finished reading it.
  void sum_in_line(float* data, std::size_t count) {
    const std::uint64_t number = ++lines_;
    Line& own = meeting_.own().lines[number % 2];
    std::memcpy(own.data, data, count * sizeof(float));
    own.number.store(number, std::memory_order_release);
    float total[Line::kFloats] = {};
    for (std::size_t rank = 0; rank < meeting_.size(); ++rank) {
      const Line& line = meeting_.of(rank).lines[number % 2];
      if (rank != meeting_.rank()) meeting_.wait(line.number, number);
      for (std::size_t i = 0; i < count; ++i) total[i] += line.data[i];
    }
    std::memcpy(data, total, count * sizeof(float));
  }

  Meeting meeting_;

 private:
  std::uint64_t lines_ = 0;
};

}  // namespace hvd::bounds
