// The agent: one per host, a child of hvdrun here and of ssh elsewhere. It starts the ranks of its
// host, watches them, passes on what they write and, when the stream to hvdrun ends for whatever
// reason, kills all of them at once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include <hvd/core/fd.hpp>

#include "descriptor_limit.hpp"
#include "frame_stream.hpp"
#include "gpu_watch.hpp"
#include "heartbeat.hpp"
#include "rank_environment.hpp"
#include "rank_process.hpp"
#include "rendezvous.hpp"

namespace hvd::launcher {

/// What an agent does otherwise that is a node's own hvdrun.
struct NodeHooks {
  std::function<void(Prepare&)> on_prepare;  ///< puts this node's own in place of what came
  std::function<void(Launch&)> on_launch;
  std::function<void(const Over&)> on_over;
  pid_t parent = -1;  ///< a signal is the user's, and told to the leading node, while it lives
};

class Agent {
 public:
  /// Frames come from `input` and go to `output`; the rank with local rank 0 of a host whose agent
  /// is given `stdin_of_first` reads from that, all others from /dev/null.
  Agent(UniqueFd input, UniqueFd output, UniqueFd stdin_of_first,
        std::optional<NodeHooks> node = std::nullopt);

  /// Returns what to exit with when the stream has ended, or SIGTERM came, and no descendant is
  /// left.
  [[nodiscard]] int run();

 private:
  void on_frame(const Frame& frame);
  void prepare(const Prepare& frame);
  void launch(const Launch& frame);
  void start_next_rank();
  void give_up(int code, const std::string& why);
  void all_started();
  void start_rank(std::size_t local_rank);
  void tell_status();
  void tell_usage(std::span<const GpuState> gpus);
  void refuse(int code, const std::string& message);

  void watch(RankProcess& rank);
  void on_rank_ended(RankProcess& rank);
  void record_exit(RankProcess& rank, int status);
  void watch_children();
  void sweep();
  void watch_end_signals();

  void end(int signal, std::chrono::milliseconds grace);
  void signal_all(int signal);
  void kill_all();
  void check_done();

  void pump(OutputPipe& pipe);
  void on_readable(OutputPipe& pipe);
  void for_each_pipe(const std::function<void(OutputPipe&)>& action);

  boost::asio::io_context io_{1};
  FrameStream stream_;
  boost::asio::signal_set child_signal_;
  boost::asio::signal_set end_signal_;
  Heartbeat heartbeat_;
  boost::asio::steady_timer grace_timer_;
  GpuWatch gpus_;
  DescriptorLimit limit_;
  UniqueFd stdin_of_first_;
  UniqueFd secret_;

  std::optional<NodeHooks> node_;
  std::optional<Prepare> job_;
  std::optional<Rendezvous> rendezvous_;
  Variables variables_;  ///< common to all ranks
  std::string path_;     ///< of the program
  int threads_ = 0;      ///< OMP_NUM_THREADS for ranks that have none
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::size_t credit_ = kOutputWindow;
  bool launched_ = false;
  bool all_started_ = false;
  bool ending_ = false;    ///< told to end: what outlives its rank has until the grace is over
  bool killed_ = false;    ///< the grace is over
  bool all_gone_ = false;  ///< no descendant is left: pipes hold all there will be
  bool done_ = false;
  int code_ = 0;  ///< to exit with
};

}  // namespace hvd::launcher
