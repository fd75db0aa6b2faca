// Runs the user's script that lists the hosts of an elastic job, once a second.
#pragma once

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
    /// A script that runs for longer is killed, and has failed.
    std::chrono::milliseconds limit{30'000};
  };
  struct Handlers {
    /// The script has listed these hosts, which are in its order and may be none. It is called each
    /// time.
    std::function<void(std::vector<HostSpec>)> on_hosts;
    /// The script could not be started, has failed, has printed something else or did not end, as
    /// `why` says. It is started again later, unless `stop` is called.
    std::function<void(const std::string& why)> on_failure;
  };

  /// Starts the script at once.
  HostDiscovery(boost::asio::io_context& io, Options options, Handlers handlers);
  /// Kills a script that runs, with its process group. Must be called when `io` runs no more
  /// handlers.
  ~HostDiscovery();
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

  /// Kills a script that runs, with its process group, and starts none any more. No handler is
  /// called afterwards.
  void stop();

 private:
  void start();
  void start_later();
  void watch();
  void wait_for_output();
  [[nodiscard]] bool take_output();
  void on_ended();
  void judge(int status);
  void kill_group() const;

  boost::asio::io_context& io_;
  const Options options_;
  const Handlers handlers_;
  boost::asio::steady_timer timer_;  ///< for the limit while the script runs, then for its start
  pid_t pid_ = -1;                   ///< of the script that runs; -1: none does
  pid_t last_group_ = -1;            ///< the process group of the one before
  std::optional<boost::asio::posix::stream_descriptor> ended_;   ///< readable when it has ended
  std::optional<boost::asio::posix::stream_descriptor> output_;  ///< what it prints
  std::string text_;
  bool late_ = false;  ///< the script was killed because it did not end
  bool stopped_ = false;
};

}  // namespace hvd::launcher
