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

void ExecutorModel::run(Job job) {
  queue_.push_back(std::move(job));
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
    std::optional<Job> job;
    if (queue_.empty()) {
      job = callbacks_.take_turn();
    } else {
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!job) return;
    job_ = std::move(*job);
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
  if (job_.sequence != 0) {
    fences_.come(rank_, job_);
  } else {
    data_.start(rank_, job_);
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
  data_.start(rank_, job_);
}

void ExecutorModel::transferred() {
  if (!waits_) return;
  waits_ = false;
  if (job_.sequence != 0) callbacks_.turn_over();
  finish(0);
}

/// Completes one tensor. Other threads may run between the completion of two tensors.
void ExecutorModel::finish(std::size_t tensor) {
  for (; tensor < job_.tensors.size(); ++tensor) {
    if (random_.chance(20)) {
      events_.at(events_.now() + delays_.local(rank_), rank_, [this, tensor] {
        callbacks_.tensor_done(*job_.tensors[tensor]);
        finish(tensor + 1);
      });
      return;
    }
    callbacks_.tensor_done(*job_.tensors[tensor]);
  }
  if (job_.sequence == 0) callbacks_.job_done();
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
  job_ = {};
  wake();
}

}  // namespace hvd::sim
