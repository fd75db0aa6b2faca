// Runs the user's script that lists the hosts of an elastic job, once a second.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include <hvd/core/internal/fd.hpp>

#include "plan/hosts.hpp"

namespace hvd::launcher {

/// Only the thread that runs `io` uses it, and is never blocked by the script. At most one script
/// runs at a time.
class HostDiscovery {
 public:
  struct Options {
    std::string command;                 ///< for /bin/sh
    std::vector<std::string> variables;  ///< the environment of the script
    int slots = 1;                       ///< of hosts that the script lists without a number
    /// The time from the end of the script to its next start.
    std::chrono::milliseconds pause{1'000};
  };
  struct Handlers {
    /// The script has listed these hosts, which are in its order and may be none. It is called each
    /// time.
    std::function<void(std::vector<HostSpec>)> on_hosts;
    /// The script could not be started, has failed or has printed something else, as `why` says. It
    /// is started again later, unless this object is destroyed.
    std::function<void(const std::string& why)> on_failure;
  };

  /// Starts the script at once.
  HostDiscovery(boost::asio::io_context& io, Options options, Handlers handlers);
  /// Kills a script that runs, with its process group. No handler is called afterwards, if `io`
  /// runs no more handlers.
  ~HostDiscovery();
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

 private:
  void start();
  void start_later();
  void read();
  void on_ended();
  void judge(int status);
  [[nodiscard]] int kill_and_wait();

  boost::asio::io_context& io_;
  const Options options_;
  const Handlers handlers_;
  boost::asio::steady_timer timer_;
  pid_t pid_ = -1;
  std::optional<boost::asio::posix::stream_descriptor> ended_;   ///< readable when it has ended
  std::optional<boost::asio::posix::stream_descriptor> output_;  ///< what it prints
  std::array<char, 4096> buffer_{};
  std::string text_;
};

}  // namespace hvd::launcher
