// Makes a transport among some of another transport's ranks.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
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
  /// `ranks` are ascending, and that of `whole` is among them. `whole` outlives the view.
  RankView(Transport& whole, std::vector<int> ranks);
  /// Owns `whole`.
  RankView(std::unique_ptr<Transport> whole, std::vector<int> ranks);
  /// `ranks` are all ranks of `whole`, in any order.
  [[nodiscard]] static std::unique_ptr<RankView> reordered(Transport& whole,
                                                           std::vector<int> ranks);

  [[nodiscard]] std::string_view name() const noexcept override { return whole_.name(); }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(ranks_.size()); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override;
  void abort() noexcept override { whole_.abort(); }

 private:
  RankView(Transport& whole, std::vector<int> ranks, int rank)
      : whole_(whole), ranks_(std::move(ranks)), rank_(rank) {}

  [[nodiscard]] int translated(int peer) const noexcept {
    return peer < 0 ? peer : ranks_[static_cast<std::size_t>(peer)];
  }

  std::unique_ptr<Transport> kept_;
  Transport& whole_;
  std::vector<int> ranks_;
  int rank_;
};

}  // namespace hvd::detail
