// Shows the progress of a job as readable text. It asks the agents, keeps their answers, shows them
// with --status, and answers `hvdrun status`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "cli/options.hpp"
#include "plan/plan.hpp"
#include "status/status_socket.hpp"
#include "status/status_table.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// Only the thread that runs `io` uses it.
class StatusService {
 public:
  struct Hooks {
    std::function<void()> ask;                   ///< sends `StatusRequest` to every agent
    std::function<void(std::string_view)> show;  ///< writes to hvdrun's stderr
    std::function<bool()> shown;                 ///< returns whether nothing waits to be written
  };

  /// `plan` must outlive it.
  StatusService(boost::asio::io_context& io, const Options& options, const Plan& plan,
                const std::string& job_id, Hooks hooks);

  /// See StatusTable.
  void regroup(const Plan& plan) { board_.regroup(plan); }
  void remember(const std::string& change) { board_.remember(change, Clock::now()); }
  void started(const Started& frame) { board_.started(frame.rank, frame.pid, frame.cpus); }
  void ended(int rank) { board_.ended(rank); }
  void heard(const RankUsage& frame);
  void heard(const RankAnswer& frame);

  /// Removes the live lines from the terminal. Must be called before anything else is written
  /// there. They return with the next round unless `written` ends within a line.
  void clear_live_lines(std::string_view written);
  /// From now on nothing is shown and no rank is asked.
  void stop();

 private:
  void ask();
  void arm();
  void show();
  void check_heard();
  void answer_all();
  [[nodiscard]] std::vector<std::string> live_lines() const;

  const bool on_;
  const bool live_;         ///< stderr is a terminal, on which the lines stay in place
  const bool whole_lines_;  ///< the output of ranks is written in whole lines only
  const std::chrono::milliseconds interval_;
  Hooks hooks_;
  StatusTable board_;
  boost::asio::steady_timer round_;   ///< when to ask next
  boost::asio::steady_timer answer_;  ///< until when answers are waited for
  Clock::time_point asked_{};
  std::vector<std::function<void(std::string)>> waiting_;  ///< shells that wait for an answer
  std::size_t drawn_ = 0;                                  ///< live lines on the screen
  bool within_line_ = false;  ///< the last output ended within a line, so none may be drawn
  bool show_due_ = false;
  bool stopped_ = false;
  std::optional<StatusServer> server_;
};

}  // namespace hvd::launcher
