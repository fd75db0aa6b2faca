// Lists the signals that a job forwards to its ranks, and keeps threads from receiving signals.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>

namespace hvd::launcher {

/// The signals that a user may send to hvdrun for all ranks. The first four ask the job to end.
inline constexpr std::array kForwardedSignals = {SIGINT,  SIGTERM, SIGHUP,
                                                 SIGQUIT, SIGUSR1, SIGUSR2};

inline bool is_forwarded(int signal) {
  return std::find(kForwardedSignals.begin(), kForwardedSignals.end(), signal) !=
         kForwardedSignals.end();
}

inline bool asks_to_end(int signal) {
  return is_forwarded(signal) && signal != SIGUSR1 && signal != SIGUSR2;
}

/// Returns whether this process ignores the signal. A signal that was ignored when hvdrun started
/// (nohup, a shell's background job) stays ignored.
inline bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// From now on signals that a user may send to hvdrun wait until the process has ended: the job is
/// over, and its exit code stands. Only the main thread receives signals.
inline void hold_forwarded_signals() noexcept {
  sigset_t held;
  ::sigemptyset(&held);
  for (const int signal : kForwardedSignals) ::sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

/// While it exists, this thread receives no signals. Neither do threads and children that it starts
/// meanwhile, until they change their own mask.
class BlockSignals {
 public:
  BlockSignals() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace hvd::launcher
