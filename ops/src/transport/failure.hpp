// Holds the failed state of a transport, a fence or a backend, which is final.
#pragma once

#include <atomic>
#include <exception>
#include <string>

#include <hvd/core/error.hpp>

namespace hvd::detail {

[[nodiscard]] Error peer_lost(int peer, std::string cause);
[[nodiscard]] Error peer_timeout(int peer, std::string cause);
/// Returns the error for a peer that broke the rules of the transport.
[[nodiscard]] Error peer_violation(int peer, std::string cause);

/// After an error a message may be sent in part, and the peer would take the next one for the rest
/// of it. So every later call throws the first error again, also a call of another object that
/// shares this one. Any thread may call `abort`, and one thread at a time the rest.
class Failure {
 public:
  /// The flag carries no data, so it orders nothing.
  void abort() noexcept { aborted_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }
  /// Returns the flag that `abort` sets, for a Watch.
  [[nodiscard]] const std::atomic<bool>& abort_flag() const noexcept { return aborted_; }
  /// Throws Errc::aborted after a call of `abort`.
  void check() const;

  /// Runs `body` unless something failed before, and keeps the error that it throws.
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

}  // namespace hvd::detail
