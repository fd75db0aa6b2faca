#include "base/stop_signals.hpp"

#include <atomic>
#include <csignal>

#include <hvd/core/stop.hpp>

namespace hvd {
namespace {

std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void watch(int signal) {
  struct sigaction current {};
  if (::sigaction(signal, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 || current.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = [](int) { request_stop(); };
  action.sa_flags = SA_RESTART;
  static_cast<void>(::sigaction(signal, &action, nullptr));
}

}  // namespace

void request_stop() noexcept { asked.store(true, std::memory_order_relaxed); }

void detail::watch_stop_signals() noexcept {
  static const bool once = [] {
    for (const int signal : {SIGTERM, SIGUSR1}) watch(signal);
    return true;
  }();
  static_cast<void>(once);
}

bool detail::process_was_asked_to_stop() noexcept { return asked.load(std::memory_order_relaxed); }

}  // namespace hvd
