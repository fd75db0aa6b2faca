// Keeps signals away from this thread, and from threads and children that begin meanwhile.
#pragma once

#include <csignal>

namespace hvd::launcher {

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
