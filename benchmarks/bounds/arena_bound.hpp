// Declares the bound for tensors in memory that all ranks share. Nothing is copied.
#pragma once

#include "bound.hpp"
#include "kernels.hpp"

namespace hvd::bounds {

/// It has these algorithms. "line" sends the data in the flag's cache line. "one-shot" goes through
/// staging and needs one synchronisation instead of two. In "direct", each rank sums its part from
/// all ranks' memory and writes the result to all; inputs are prefetched or not, and stores may
/// bypass the caches.
class ArenaBound final : public Bound {
 public:
  /// A tensor has the same offset in each rank's memory. `memory` and `stage` hold the parts of all
  /// ranks, one after the other, with `size` and `stage_size` floats each.
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
