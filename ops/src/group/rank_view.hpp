// A transport among some of another one's ranks.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <hvd/ops/transport.hpp>

namespace hvd {

/// Translates ranks and leaves the rest to `whole`, which outlives it and is aborted with it.
/// Errors name ranks of `whole`.
class RankView final : public Transport {
 public:
  /// `ranks` ascending, `whole`'s own among them.
  RankView(Transport& whole, std::vector<int> ranks);
  /// Keeps `whole`.
  RankView(std::unique_ptr<Transport> whole, std::vector<int> ranks);
  /// All of `whole`'s ranks, in any order.
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

}  // namespace hvd
