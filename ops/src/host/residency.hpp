// Which tensors of a call every rank can reach.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "host/allreduce.hpp"
#include "host/group.hpp"
#include "host/host_arena.hpp"

namespace hvd {

/// Where this rank's tensors lie, and then everybody's.
class Residency {
 public:
  /// As many tensors as can be told of in one turn.
  static constexpr std::size_t kMost = HostMessage::kLong / 16;

  /// At most `kMost` tensors. `as_given`: contributions need no change
  /// before they are read.
  void look_at(std::span<const TensorSlice> tensors, std::size_t element, const HostArena& arena,
               bool as_given);
  /// Nothing lies in this rank's arena: so everything is staged, on all ranks.
  [[nodiscard]] bool nothing_here() const noexcept { return here_ == 0; }
  /// Says it, and how many chunks this rank has put into its slots by then (0: no matter).
  void say(HostGroup& group, std::uint64_t name, std::uint64_t copied = 0) const;
  /// When it is said, hears the others, and all draw the same conclusion of these tensors: those
  /// that were looked at, which outlive their use. Throws Errc::protocol naming a rank that points
  /// outside its arena.
  void agree(HostGroup& group, std::span<const TensorSlice> tensors, std::uint64_t name,
             Deadline deadline);

  [[nodiscard]] const DirectTensors& direct() const noexcept { return direct_; }
  /// Where the others may read and write: what lies in this rank's arena of what was looked at, as
  /// offsets in its segment.
  [[nodiscard]] std::vector<BlockList::Block> told() const;
  /// In the order of the call.
  [[nodiscard]] std::span<const TensorSlice> staged() const noexcept { return staged_; }

 private:
  /// Offsets in the rank's segment.
  struct Place {
    std::uint64_t input = 0;
    std::uint64_t output = 0;
  };

  void sort(const HostGroup& group, std::span<const TensorSlice> tensors);
  [[nodiscard]] bool is_direct(const HostGroup& group, std::size_t tensor, std::size_t bytes);

  std::size_t element_ = 0;
  std::vector<Place> places_;
  std::vector<std::size_t> bytes_;  ///< likewise, of each tensor
  std::size_t here_ = 0;            ///< tensors in this rank's arena
  DirectTensors direct_;
  std::vector<TensorSlice> staged_;
};

}  // namespace hvd
