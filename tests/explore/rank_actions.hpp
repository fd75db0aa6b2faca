// Carries out what a protocol wants, in the world that is being changed. A copied protocol refers
// to the same actions as its original, so these belong to no world.
#pragma once

#include "explored_world.hpp"

namespace hvd::explore {

class RankActions final : public detail::Protocol::Actions {
 public:
  explicit RankActions(int rank) : rank_(rank) {}
  [[nodiscard]] static RankActions& of(int rank);
  /// From now on all actions concern this world. One thread explores.
  static void enter(ExploredWorld& world);

  void send(const std::vector<int>& to, const detail::Message& message) override;
  void run(const detail::FusedBatch& fused) override;
  void carry_out(const detail::Rejection& rejection) override;
  void carry_out(const detail::SetAdded& added) override;
  void carry_out(const detail::SetRemoved& removed) override;
  void carry_out(const detail::AllJoined& joined) override;
  void carry_out(const detail::Freeze& freeze) override;
  std::uint64_t stop_replay() override;
  void resume(const std::vector<std::uint64_t>& begun) override;
  void stalled(const detail::Stall& stall) override;
  void failed(const detail::Verdict& verdict) override;
  void aborted(const detail::Abort& message) override;
  void shutdown_acknowledged() override;
  void slowest(const detail::Slowest&, bool) override {}

 private:
  [[nodiscard]] ExploredRank& me();
  [[nodiscard]] std::shared_ptr<detail::PendingTensor> scheduled(const detail::OperationKey& key);
  void follow_up(const detail::TensorTable::Next& next);

  int rank_;
};

}  // namespace hvd::explore
