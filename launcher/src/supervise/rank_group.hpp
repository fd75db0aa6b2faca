// Watches the ranks that one process has started on its machine, reads their output, and ends them.
// An agent of hvdrun has one group, and so has a call of hvd::spawn.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/core/types.hpp>

#include "supervise/job_policy.hpp"
#include "supervise/rank_inquiry.hpp"
#include "supervise/rank_output.hpp"
#include "supervise/start_process.hpp"

namespace hvd::launcher {

/// Says how a group handles processes that its ranks start.
enum class Descendants {
  /// This process has no other children and is a subreaper: all descendants of a rank are ended
  /// with the rank, and get the signals that the rank gets.
  belong_to_the_group,
  /// This process may have other children: only the ranks themselves get signals and are ended.
  are_left_alone,
};

/// Only the thread that runs `io` uses it. That thread also starts the ranks.
class RankGroup {
 public:
  struct Handlers {
    /// Rank `index`, in the order of `start`, has ended. `end.status` is 0 where other code in this
    /// process has waited for it.
    std::function<void(std::size_t index, const RankEnd& end)> on_exit;
    /// A rank has written `bytes`, at most `kMaxOutput`. Each byte uses up credit, and without
    /// credit no more output is read. `add_credit` gives it back.
    std::function<void(std::size_t index, Stream stream, Bytes bytes)> on_output;
    /// No process of the group is left; the rest of their output may still follow.
    std::function<void()> on_gone;
    /// All output of the ranks has been handed over. This is the last call.
    std::function<void()> on_done;
  };

  RankGroup(boost::asio::io_context& io, Descendants descendants, Handlers handlers);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Must be called before `start` in a group of workers of an elastic job: they may be started
  /// while the group is watched, and no group is gone before `end` was called.
  void stay_open() noexcept { open_ = true; }
  /// Starts a process as `rank` of the job, which its environment has as HVD_RANK, or a worker's as
  /// HVD_WORKER, and returns its pid. The group adds HVD_STATUS_FD. An `output` or `error` of -1 in
  /// the request becomes a pipe that the group reads. Throws LaunchError, as `start_process` does.
  pid_t start(int rank, StartRequest request);
  /// Must be called when all ranks have been started, in a group that does not stay open. The
  /// handlers are called from now on.
  void watch();

  /// Sends a signal to every process of the group.
  void signal(int signal);
  /// Sends `order.signal` now, and SIGKILL to the remaining processes after `order.grace`, or after
  /// twice as long if the ranks have agreed to stop.
  void end(const End& order);
  /// Sends SIGKILL to a rank and its process group.
  void kill(std::size_t index);
  /// Ends every process at once. A group that descendants belong to waits until all are gone, for
  /// at most `kKillDeadline`.
  void kill();
  /// Kills and forgets all ranks, and waits until they are gone. No handler is called for them.
  void abandon();

  /// Allows the group to hand over `bytes` more of output. Without credit a rank's pipe fills up
  /// and the rank waits, which limits the memory that much output takes.
  void add_credit(std::size_t bytes);
  /// Uses up credit for output that the caller makes itself. Returns false if there is not enough.
  [[nodiscard]] bool use_credit(std::size_t bytes);

  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
  [[nodiscard]] int rank(std::size_t index) const { return ranks_.at(index)->rank; }
  [[nodiscard]] pid_t pid(std::size_t index) const { return ranks_.at(index)->pid; }
  [[nodiscard]] bool running(std::size_t index) const { return ranks_.at(index)->running; }
  [[nodiscard]] bool any_running() const;
  [[nodiscard]] RankInquiry& inquiry(std::size_t index) { return ranks_.at(index)->inquiry; }
  [[nodiscard]] bool watching() const noexcept { return watching_; }
  /// Returns whether `end` was called. A process that outlives its rank is killed only after the
  /// grace period.
  [[nodiscard]] bool ending() const noexcept { return ending_; }

 private:
  /// The read end of a rank's stdout or stderr.
  struct OutputPipe {
    OutputPipe(boost::asio::io_context& io, UniqueFd end);
    boost::asio::posix::stream_descriptor descriptor;
    bool open = true;
    bool waiting = false;  ///< waits for bytes; otherwise, while open, for credit
  };
  struct Rank {
    int rank = 0;
    pid_t pid = -1;                               ///< also its process group, where it has one
    boost::asio::posix::stream_descriptor ended;  ///< readable when the process is over
    RankInquiry inquiry;
    std::array<std::optional<OutputPipe>, 2> pipes{};  ///< by stream
    Clock::time_point started = Clock::now();
    bool running = true;
  };

  void watch(std::size_t index);
  void wait_for_end(std::size_t index);
  void on_rank_ended(std::size_t index);
  void record_exit(std::size_t index, int status);
  void kill_after(std::chrono::milliseconds grace, bool extended);
  void watch_children();
  void sweep(std::chrono::milliseconds again = std::chrono::milliseconds{1});
  void check_done();
  void for_each_pipe(const std::function<void(std::size_t, Stream, OutputPipe&)>& action);
  void pump(std::size_t index, Stream stream, OutputPipe& pipe);
  void on_readable(std::size_t index, Stream stream, OutputPipe& pipe);

  boost::asio::io_context& io_;
  const bool owns_descendants_;
  const Handlers handlers_;
  std::optional<boost::asio::signal_set> child_signal_;
  boost::asio::steady_timer sweep_timer_;
  boost::asio::steady_timer grace_timer_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::size_t credit_ = kOutputWindow;
  bool open_ = false;  ///< until `end`, more ranks may be started
  bool watching_ = false;
  bool ending_ = false;
  bool killed_ = false;  ///< the grace is over
  bool gone_ = false;    ///< no process is left: nothing more is written to the pipes
  bool done_ = false;
};

}  // namespace hvd::launcher
