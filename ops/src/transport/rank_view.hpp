// Makes a transport among some of another transport's ranks, or among all in another order.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <hvd/ops/internal/transport.hpp>

namespace hvd::detail {

/// Returns the rank that `rank` has in the subset `ranks`. Throws Errc::invalid_argument unless
/// `ranks` are ascending, below `size`, and `rank` among them.
[[nodiscard]] int rank_in_subset(std::span<const int> ranks, int rank, int size);

/// Translates ranks and leaves the rest to `whole`, which is aborted with it. Errors name ranks of
/// `whole`.
class RankView final : public Transport {
 public:
  /// `ranks` are ranks of `whole` in any order, its own among them. `whole` outlives the view.
  RankView(Transport& whole, std::vector<int> ranks);

  [[nodiscard]] std::string_view name() const noexcept override { return whole_.name(); }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(ranks_.size()); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override;
  void abort() noexcept override { whole_.abort(); }

 private:
  [[nodiscard]] int translated(int peer) const noexcept {
    return peer < 0 ? peer : ranks_[static_cast<std::size_t>(peer)];
  }

  Transport& whole_;
  std::vector<int> ranks_;
  int rank_;
};

}  // namespace hvd::detail
