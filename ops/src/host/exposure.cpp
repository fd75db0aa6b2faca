#include "host/exposure.hpp"

#include <exception>
#include <string>

#include <fmt/format.h>

#include <hvd/core/log.hpp>

namespace hvd {

void Exposure::announce() noexcept {
  if (given_up()) return;
  state_.store(State::announced, std::memory_order_release);
  // Either this thread sees the abort, or `abort` the announcement.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Exposure::retract() noexcept {
  State announced = State::announced;
  state_.compare_exchange_strong(announced, State::none);
}

void Exposure::begin() noexcept {
  State before = state_.load(std::memory_order_acquire);
  // Only from `announced` can another thread take it away.
  if (before == State::none) {
    state_.store(State::begun, std::memory_order_relaxed);
  } else if (before == State::announced) {
    state_.compare_exchange_strong(before, State::begun);
  }
}

void Exposure::end() noexcept { state_.store(State::none, std::memory_order_relaxed); }

void Exposure::abort() noexcept {
  const std::lock_guard lock(mutex_);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  State announced = State::announced;
  if (state_.compare_exchange_strong(announced, State::given_up)) take_back();
}

void Exposure::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  const State before = state_.exchange(State::given_up);
  if (before == State::announced || before == State::begun) take_back();
}

void Exposure::take_back() const noexcept {
  try {
    const std::string refused = arena_.make_private(residency_.told());
    if (refused.empty()) return;
    log(LogLevel::warn, rank_,
        fmt::format("tensors of the operation that failed may still be written to by ranks that "
                    "are late: {}",
                    refused));
  } catch (const std::exception&) {
    // No memory even for that: the operation's own error is what counts.
  }
}

}  // namespace hvd
