#include "polling/watch.hpp"

#include <thread>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {
namespace {

// A test costs 50 to 200 ns, so this many tests take about as long as a small message.
constexpr unsigned kSpins = 32;
// A test that takes longer has moved data.
constexpr std::chrono::microseconds kWork{4};

}  // namespace

Watch::Watch(Deadline deadline, const std::atomic<bool>& aborted, std::string_view phase,
             std::string_view engine) noexcept
    : deadline_(deadline),
      aborted_(&aborted),
      phase_(phase),
      engine_(engine),
      began_(Clock::now()),
      tested_(began_) {}

std::chrono::milliseconds Watch::elapsed() const noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
}

void Watch::restart() noexcept {
  const Clock::time_point now = Clock::now();
  deadline_ += now - began_;
  began_ = now;
}

void Watch::check_abort() const {
  if (aborted_->load(std::memory_order_acquire)) {
    Fault fault;
    fault.cause = fmt::format("aborted while {} was at work", engine_);
    fault.phase = phase_;
    fault.elapsed = elapsed();
    throw Error(Errc::aborted, std::move(fault));
  }
}

void Watch::check() const {
  check_abort();
  if (Clock::now() >= deadline_) {
    Fault fault;
    fault.cause = fmt::format("{} did not finish before the deadline", engine_);
    fault.phase = phase_;
    fault.elapsed = elapsed();
    throw Error(Errc::timeout, std::move(fault));
  }
}

void Watch::pause() {
  check_abort();
  const Clock::time_point now = Clock::now();
  if (now - tested_ > kWork) yields_from_ = now + longest_spin_;
  if (++pauses_ > kSpins) {
    check();
    if (now >= yields_from_) {
      std::this_thread::yield();
      longest_spin_ = (Clock::now() - now) / 2;
    }
  }
  tested_ = Clock::now();
}

}  // namespace hvd::detail
