// How a transport ends: once, and for good.
#pragma once

#include <atomic>
#include <exception>
#include <string>

#include <hvd/core/error.hpp>

namespace hvd {

[[nodiscard]] Error peer_lost(int peer, std::string cause);
[[nodiscard]] Error peer_timeout(int peer, std::string cause);
/// A peer that broke the rules of the transport.
[[nodiscard]] Error peer_violation(int peer, std::string cause);

/// After the first error bytes may be half sent: what follows would be read as something else, so
/// every later call gets that error again. `abort` from any thread, the rest from one at a time.
class Failure {
 public:
  void abort() noexcept { aborted_.store(true, std::memory_order_release); }
  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// Throws Errc::aborted when somebody has called `abort`.
  void check() const;

  /// Runs `body` unless something failed before; keeps what it throws.
  template <class Body>
  void guard(Body body) {
    if (first_) std::rethrow_exception(first_);
    try {
      check();
      body();
    } catch (...) {
      first_ = std::current_exception();
      throw;
    }
  }

 private:
  std::atomic<bool> aborted_{false};
  std::exception_ptr first_;
};

}  // namespace hvd
