#include "executor_model.hpp"

#include <utility>

namespace hvd::sim {

using namespace detail;  // NOLINT: a test

ExecutorModel::ExecutorModel(int rank, EventQueue& events, Delays& delays, Random& random,
                             FenceModel& fences, DataPlane& data, Callbacks callbacks)
    : rank_(rank),
      events_(events),
      delays_(delays),
      random_(random),
      fences_(fences),
      data_(data),
      callbacks_(std::move(callbacks)) {}

void ExecutorModel::later(void (ExecutorModel::*step)()) {
  events_.at(events_.now() + delays_.local(rank_), rank_, [this, step] { (this->*step)(); });
}

void ExecutorModel::run(LocalBatch batch) {
  queue_.push_back(std::move(batch));
  wake();
}

void ExecutorModel::wake() {
  if (std::exchange(looking_, true)) return;
  later(&ExecutorModel::look);
}

void ExecutorModel::drain() {
  if (state_ == State::running) state_ = State::draining;
  wake();
}

void ExecutorModel::stop() {
  state_ = State::stopped;
  if (waits_) {
    // The backend was aborted, so the call returns with an error.
    waits_ = false;
    later(&ExecutorModel::end_job);
  }
  wake();
}

bool ExecutorModel::can_run() const {
  return state_ != State::stopped && !over_ && !failed_ && !busy_ &&
         (!queue_.empty() || callbacks_.turn_ready());
}

void ExecutorModel::look() {
  looking_ = false;
  if (over_) return;
  if (can_run()) {
    std::optional<LocalBatch> batch;
    if (queue_.empty()) {
      batch = callbacks_.take_turn();
    } else {
      batch = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!batch) return;
    batch_ = std::move(*batch);
    busy_ = true;
    later(&ExecutorModel::begin);
    return;
  }
  if (busy_) return;
  if (state_ != State::running) {
    over_ = true;
    queue_.clear();
    callbacks_.stopped();
  }
}

void ExecutorModel::begin() {
  if (state_ == State::stopped) return end_job();
  waits_ = true;
  if (batch_.sequence != 0) {
    fences_.come(rank_, batch_);
  } else {
    data_.start(rank_, batch_);
  }
}

void ExecutorModel::met(bool all) {
  if (!waits_) return;
  if (!all) {
    waits_ = false;
    callbacks_.turn_over();
    return end_job();
  }
  ++turns_;
  callbacks_.turn_committed();
  data_.start(rank_, batch_);
}

void ExecutorModel::transferred() {
  if (!waits_) return;
  waits_ = false;
  if (batch_.sequence != 0) callbacks_.turn_over();
  finish(0);
}

/// Completes one tensor. Other threads may run between the completion of two tensors.
void ExecutorModel::finish(std::size_t tensor) {
  for (; tensor < batch_.tensors.size(); ++tensor) {
    if (random_.chance(20)) {
      events_.at(events_.now() + delays_.local(rank_), rank_, [this, tensor] {
        callbacks_.tensor_done(*batch_.tensors[tensor]);
        finish(tensor + 1);
      });
      return;
    }
    callbacks_.tensor_done(*batch_.tensors[tensor]);
  }
  if (batch_.sequence == 0) callbacks_.batch_done();
  end_job();
}

void ExecutorModel::broken(Blame blame) {
  if (!waits_) return;
  waits_ = false;
  failed_ = true;
  callbacks_.failed(blame);
  end_job();
}

void ExecutorModel::end_job() {
  busy_ = false;
  batch_ = {};
  wake();
}

}  // namespace hvd::sim
