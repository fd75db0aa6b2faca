// Ranks of one host for the explorer, with the product's own objects and shared memory.
#pragma once

#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "explorer.hpp"
#include "host/fence.hpp"
#include "host/shared.hpp"

namespace hvd::weak {

/// Every rank maps the segments of all ranks, as processes do.
class Host {
 public:
  explicit Host(int ranks);

  /// Makes everything as it is when a job begins.
  void reset();

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] std::span<const int> ranks() const noexcept { return ranks_; }
  [[nodiscard]] detail::HostShared& shared(int rank) { return *at(rank).shared; }
  [[nodiscard]] detail::HostFence& fence(int rank) { return *at(rank).fence; }
  /// Returns the group of all ranks, as `rank` sees it.
  [[nodiscard]] detail::HostGroup& group(int rank) { return *at(rank).group; }

 private:
  struct Rank {
    std::shared_ptr<const detail::HostSegment> own;
    std::vector<detail::HostSegment> others;  ///< while `shared` does not have them
    std::shared_ptr<detail::HostShared> shared;
    std::unique_ptr<detail::HostFence> fence;
    std::shared_ptr<detail::HostGroup> group;
  };
  [[nodiscard]] Rank& at(int rank) { return state_[static_cast<std::size_t>(rank)]; }

  std::vector<int> ranks_;
  std::vector<Rank> state_;
};

}  // namespace hvd::weak
