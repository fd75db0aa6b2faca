// Runs the policy of a job on an event loop. It keeps the timers of the policy and passes its
// orders on. hvdrun and hvd::spawn have one for each job.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "supervise/job_policy.hpp"

namespace hvd::launcher {

/// Only the thread that runs `io` uses it.
class Supervisor {
 public:
  /// `on_end` carries out an order to end all ranks of the job.
  Supervisor(boost::asio::io_context& io, int num_ranks, const JobPolicy::Options& options,
             std::function<void(const End&)> on_end);

  /// Ends the job after `time`, with exit code 124, and says `what`.
  void limit(std::chrono::milliseconds time, const std::string& what);

  // These pass events to JobPolicy.
  void on_exit(const RankEnd& end, Clock::time_point at = Clock::now());
  void on_signal(int signal) { obey(policy_.on_signal(signal)); }
  void on_loss(int code, const std::string& what) { obey(policy_.on_loss(code, what)); }
  void on_trouble(int code, const std::string& what) { obey(policy_.on_trouble(code, what)); }

  [[nodiscard]] bool failed() const noexcept { return policy_.failed(); }
  [[nodiscard]] bool ending() const noexcept { return policy_.ending(); }
  [[nodiscard]] Outcome outcome() const { return policy_.outcome(); }
  /// Must be called when the job is over. Cancels the timers, so that they do not keep the event
  /// loop running.
  void stop();

 private:
  void obey(const std::optional<End>& order);

  JobPolicy policy_;
  std::function<void(const End&)> on_end_;
  boost::asio::steady_timer settle_timer_;
  boost::asio::steady_timer limit_timer_;
};

}  // namespace hvd::launcher
