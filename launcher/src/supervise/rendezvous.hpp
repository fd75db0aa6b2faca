// Serves the store in which the ranks of a job find each other, and reserves a port for programs
// that read torch's variables.
#pragma once

#include <cstdint>
#include <string>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/store_server.hpp>

namespace hvd::launcher {

/// Returns a new job id: "hvd-" and 16 random hexadecimal digits.
[[nodiscard]] std::string random_job_id();

/// Reserves a TCP port, which the system gives to no other process while this object lives. Its
/// socket is bound with SO_REUSEADDR and does not listen, so that one program can listen on the
/// port. `address` is numeric. Throws LaunchError (71).
class ReservedPort {
 public:
  explicit ReservedPort(const std::string& address);
  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

 private:
  UniqueFd socket_;
  std::uint16_t number_ = 0;
};

class Rendezvous {
 public:
  struct Options {
    std::string job_id;
    std::uint32_t epoch = 0;        ///< restarts so far
    bool several_machines = false;  ///< else the store is a Unix socket of this machine
    std::string interfaces{};       ///< where other machines reach it, as in `Config::interfaces`
    Secret secret;
  };

  /// Starts a thread, which inherits the signal mask of the calling thread. Throws LaunchError, and
  /// Error when no interface matches `interfaces`.
  explicit Rendezvous(const Options& options);

  [[nodiscard]] const std::string& store() const noexcept { return store_.address(); }
  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }

 private:
  std::string host_;  ///< numeric
  ReservedPort port_;
  EventLoop loop_;
  StoreServer store_;
};

}  // namespace hvd::launcher
