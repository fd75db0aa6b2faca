// The bound for tensors that live in memory all ranks share: nothing is copied.
#pragma once

#include "bound.hpp"
#include "kernels.hpp"

namespace hvd::bounds {

/// Ways: "line", through the flag's cache line; "one-shot", through staging, for one hand-over
/// instead of two; "direct", where each rank sums its part straight from everybody's memory and
/// writes it to everybody, with inputs asked for ahead or not, or stores past the caches.
class ArenaBound final : public Bound {
 public:
  /// A tensor has the same place in each rank's memory. `memory` and `stage` are all ranks', one
  /// after the other, `size` and `stage_size` floats each.
  ArenaBound(Meeting meeting, float* memory, std::size_t size, float* stage,
             std::size_t stage_size);

  [[nodiscard]] std::string name() const override { return "bound-arena"; }
  [[nodiscard]] float* memory(std::size_t bytes) override;
  [[nodiscard]] std::vector<std::string> ways(std::size_t bytes) const override;
  void allreduce(float* data, std::size_t count, const std::string& way) override;

 private:
  void one_shot(float* data, std::size_t count);
  void direct(float* data, std::size_t count, Store store, Fetch fetch);

  float* memory_;
  std::size_t size_;
  float* stage_;
  std::size_t stage_size_;
  std::uint64_t directs_ = 0;
  std::uint64_t one_shots_ = 0;
};

}  // namespace hvd::bounds
