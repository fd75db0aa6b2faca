// Models the product's executor in virtual time: it runs one batch at a time, and negotiated
// batches before those of the frozen schedule. docs/internals/simulator.md compares the two.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "data_plane.hpp"
#include "engine/local_batch.hpp"
#include "fence_model.hpp"

namespace hvd::sim {

class ExecutorModel {
 public:
  struct Callbacks {
    std::function<std::optional<detail::LocalBatch>()> take_turn;
    std::function<bool()> turn_ready;
    std::function<void()> turn_committed;
    std::function<void()> turn_over;
    std::function<void(detail::PendingTensor&)> tensor_done;
    std::function<void()> batch_done;
    std::function<void(Blame)> failed;
    std::function<void()> stopped;
  };

  ExecutorModel(int rank, EventQueue& events, Delays& delays, Random& random, FenceModel& fences,
                DataPlane& data, Callbacks callbacks);

  void run(detail::LocalBatch batch);
  /// Tells the executor that a batch may be ready.
  void wake();
  void settle(const std::vector<std::uint64_t>& reached) { fences_.settle(rank_, reached); }
  void drain();
  void stop();

  [[nodiscard]] bool idle() const noexcept { return !busy_; }
  [[nodiscard]] bool running() const noexcept { return state_ == State::running; }
  /// Returns whether the executor waits at a ready fence or in a collective.
  [[nodiscard]] bool waits() const noexcept { return waits_; }
  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] std::uint64_t turns() const noexcept { return turns_; }

  // Called by the ready fences (FenceModel) and the data plane.
  void met(bool all);
  void transferred();
  void broken(Blame blame);

 private:
  enum class State { running, draining, stopped };

  [[nodiscard]] bool can_run() const;
  void look();
  void begin();
  void finish(std::size_t tensor);
  void end_job();
  void later(void (ExecutorModel::*step)());

  int rank_;
  EventQueue& events_;
  Delays& delays_;
  Random& random_;
  FenceModel& fences_;
  DataPlane& data_;
  Callbacks callbacks_;
  std::deque<detail::LocalBatch> queue_;
  State state_ = State::running;
  bool busy_ = false;
  bool waits_ = false;  // waits at a ready fence or in a collective
  bool failed_ = false;
  bool over_ = false;
  bool looking_ = false;
  detail::LocalBatch batch_;
  std::uint64_t turns_ = 0;
};

}  // namespace hvd::sim
