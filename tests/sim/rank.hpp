// One rank: the product's protocol and tensor table, with a model of `Coordinator` around them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/tensor_table.hpp"
#include "executor_model.hpp"
#include "policy/protocol.hpp"
#include "user.hpp"

namespace hvd::sim {

struct World;

/// The end of a rank's part in the job.
enum class End { none, shut_down, failed };

class SimRank final : private detail::Protocol::Actions {
 public:
  SimRank(World& world, int rank, const detail::Protocol::Settings& settings,
          const RankProgram& program);

  void start();
  [[nodiscard]] int rank() const noexcept { return rank_; }

  // Called by the user. Submits all requests or none, and appends to `records`. Returns false when
  // this rank is closed.
  bool submit(std::vector<Request> requests, int slot, std::vector<Record*>& records);
  void program_over(Nanos linger);
  void abort();
  /// A waiting thread has looked for work.
  void looked();

  // Called by the network.
  void message(const std::vector<int>& from, std::span<const std::byte> bytes);
  void lost(int peer);

  [[nodiscard]] ExecutorModel& executor() noexcept { return executor_; }
  [[nodiscard]] const ExecutorModel& executor() const noexcept { return executor_; }
  [[nodiscard]] bool over() const noexcept {
    return end_ != End::none && executor_.over() && user_.finished();
  }
  [[nodiscard]] End end() const noexcept { return end_; }
  [[nodiscard]] Errc code() const noexcept { return code_; }
  [[nodiscard]] int culprit() const noexcept { return culprit_; }
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }

 private:
  // Protocol::Actions
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

  ExecutorModel::Callbacks callbacks();
  std::optional<detail::LocalBatch> take_turn();
  void tensor_done(detail::PendingTensor& tensor, std::optional<Errc> error);
  void fail_pending();
  void tick();
  void watch_replay();
  void announce();
  void require(const std::string& problem) const;
  void want_thaw();
  void follow_up(const detail::TensorTable::Next& next);
  void give_up(const detail::Abort& message, bool is_own_verdict);
  void when_delivered(Nanos patience, std::function<void()> then);
  void look_for_delivery(bool one_host, Nanos deadline, std::function<void()> then);
  void leave();
  [[nodiscard]] Clock::time_point now() const;
  [[nodiscard]] std::shared_ptr<detail::PendingTensor> scheduled(const detail::OperationKey& key);
  /// Posts a task to the loop thread, after those posted before.
  void post(std::function<void()> task);

  World& world_;
  const int rank_;
  const Nanos peer_timeout_;
  const Nanos longest_silence_;  // of a host, before its ranks are given up
  detail::TensorTable table_;
  detail::Protocol protocol_;
  ExecutorModel executor_;
  User user_;
  End end_ = End::none;
  Errc code_ = Errc::internal;
  int culprit_ = -1;
  std::string cause_;
  bool closed_ = false;  // shut down or failed: nothing can be submitted
  bool left_ = false;    // disconnected
  bool replaying_ = false;
  std::uint32_t epoch_ = 0;  // epoch of the last freeze
  std::optional<Nanos> turn_since_;
  std::uint64_t submitted_ = 0;
  std::optional<std::uint64_t> held_back_before_;
  std::uint64_t submitted_before_ = 0;
  Nanos held_back_since_ = 0;
  Nanos last_post_ = 0;
};

}  // namespace hvd::sim
