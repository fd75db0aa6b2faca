// Declares the bound for tensors in private memory. All data passes through shared staging memory.
#pragma once

#include "bound.hpp"

namespace hvd::bounds {

/// Its algorithms are "line" and "one-shot", as in ArenaBound, and one for each size of chunk from
/// 32 KiB to 256 KiB. Chunks are copied in, reduced in parts and copied out, and the next chunk is
/// copied in before the sum of this one is waited for. With "-stream", results bypass the caches.
/// With "-back", sums return in the slots of the contributions, whose cache lines the reducing core
/// has. With "-plain", inputs are not prefetched.
class PrivateBound final : public Bound {
 public:
  /// `stage` holds the parts of all ranks, one after the other, with `stage_size` floats each, at
  /// least `kStage` bytes.
  PrivateBound(Meeting meeting, float* stage, std::size_t stage_size);

  static constexpr std::size_t kSlot = 256 << 10;
  static constexpr std::size_t kDepth = 3;  ///< slots in use at a time, in each direction
  static constexpr std::size_t kStage = 2 * kDepth * kSlot;

  [[nodiscard]] std::string name() const override { return "bound-private"; }
  [[nodiscard]] std::vector<std::string> ways(std::size_t bytes) const override;
  void allreduce(float* data, std::size_t count, const std::string& way) override;

 private:
  struct Chunks;

  [[nodiscard]] float* slot(std::size_t rank, std::uint64_t chunk, bool out) const noexcept;
  void one_shot(float* data, std::size_t count);
  void chunked(const Chunks& chunks);
  void copy_in(const Chunks& chunks, std::uint64_t chunk);
  void reduce(const Chunks& chunks, std::uint64_t chunk);
  void copy_out(const Chunks& chunks, std::uint64_t chunk);

  float* stage_;
  std::size_t stage_size_;
  std::uint64_t chunks_ = 0;  ///< chunks so far, over all calls
  std::uint64_t one_shots_ = 0;
};

}  // namespace hvd::bounds
