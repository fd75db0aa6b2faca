// Runs the agent of a host. On hvdrun's own machine it is a child of hvdrun; on other machines ssh
// starts it. It starts the ranks of its host, watches them and passes on their output. When the
// stream to hvdrun ends, for whatever reason, it kills all of them at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <sys/types.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>

#include "agent/gpu_watch.hpp"
#include "agent/held_cores.hpp"
#include "agent/worker_socket.hpp"
#include "base/exit_codes.hpp"
#include "plan/binding.hpp"
#include "plan/rank_environment.hpp"
#include "supervise/rank_group.hpp"
#include "supervise/rendezvous.hpp"
#include "transport/agent_stream.hpp"
#include "transport/heartbeat.hpp"

namespace hvd::launcher {

/// The options of an agent. An agent that hvdrun has started on its own host has the defaults.
struct AgentOptions {
  std::optional<Prepare> own{};  ///< its own part of the job (own_part.hpp)
  std::function<void(const Finished&)>
      on_finished{};  ///< is called with the end of a job that another node leads
  /// A signal to the agent is for the whole job and is forwarded to the leading node. If false, it
  /// is for the ranks of this host. Once the parent process has died, a signal ends the agent.
  bool forwards_signals = false;
  /// How long hvdrun may be silent before its first heartbeat, and from then on until it prepares
  /// the agent, from which it learns the job's own limit. A `patience` of 0 means for ever.
  std::chrono::milliseconds patience{0};
  std::chrono::milliseconds host_timeout{0};
};

class Agent {
 public:
  /// Reads frames from `input` and sends frames to `output`. The first rank reads its standard
  /// input from `stdin_of_first` if that is given; all other ranks read from /dev/null.
  Agent(UniqueFd input, UniqueFd output, UniqueFd stdin_of_first, AgentOptions options = {});

  /// Runs until the stream has ended or a signal has ended the agent, and no descendant is left.
  /// Returns the exit code of the process.
  [[nodiscard]] int run();
  /// Tells whether a frame of hvdrun has arrived.
  [[nodiscard]] bool answered() const noexcept { return answered_; }
  /// Returns the user's signal that made the agent leave before it was prepared, or 0.
  [[nodiscard]] int left_by() const noexcept { return left_by_; }

 private:
  void on_frame(const Frame& frame);
  void prepare(const Prepare& frame);
  void launch(const Launch& frame);
  void start_next_rank();
  void give_up(int code, const std::string& why);
  void all_started();
  void start_rank(const Prepare::Rank& rank, std::size_t place, StartRequest request = {});
  [[nodiscard]] Variables variables_of_first() const;
  void share_cores(int ranks);
  void serve_store(std::uint32_t epoch, RendezvousReach reach);

  // These are for elastic jobs.
  void on_elastic_frame(const Frame& frame);
  void start_worker(const StartWorker& frame);
  void report_not_started(int worker, const LaunchError& error);
  void pass_on(const ElasticMessage& message);
  void serve(const Serve& frame);
  [[nodiscard]] std::optional<std::size_t> running_worker(int number) const;
  [[nodiscard]] std::size_t free_place() const;

  void send_status();
  void send_usage(std::span<const GpuState> gpus);
  void refuse(int code, const std::string& message);
  void leave();
  void watch_stream(std::chrono::milliseconds limit);

  void watch_signals();
  void on_signal(int signal);
  void forward(int signal);
  void on_flushed();

  boost::asio::io_context io_{1};
  AgentStream stream_;
  boost::asio::signal_set signals_;
  LinkHeartbeat heartbeat_;
  boost::asio::steady_timer leave_timer_;  ///< ends the agent after `kFarewell`
  RankGroup ranks_;
  GpuWatch gpus_;
  UniqueFd stdin_of_first_;
  UniqueFd secret_;

  AgentOptions options_;
  std::optional<Prepare> job_;
  std::optional<Rendezvous> rendezvous_;
  Variables variables_;  ///< common to all ranks
  std::string path_;     ///< of the program
  int threads_ = 0;      ///< OMP_NUM_THREADS for ranks that have none
  int sharers_ = 0;      ///< the ranks that `threads_` and `binding_` are for
  HeldCores held_;
  Binding binding_;
  struct Worker {
    std::size_t place = 0;  ///< as a local rank: no other running worker has it
    std::unique_ptr<WorkerSocket> socket;
  };
  std::vector<Worker> workers_;  ///< in an elastic job, as in `ranks_`
  bool answered_ = false;
  int left_by_ = 0;
  bool launched_ = false;
  /// When the agent has passed on a signal that asks its ranks to end. No worker of an elastic job
  /// has started since.
  std::optional<Clock::time_point> asked_;
  const pid_t parent_ = ::getppid();
  int code_ = 0;  ///< the exit code of the process
};

/// Runs hvdrun as an agent on its standard streams. `stdin_of_first` is the descriptor from which
/// the host's first rank reads, or -1. Returns the exit code of the process.
[[nodiscard]] int run_agent(int stdin_of_first);
/// Does the same on another host, under a guard that ends the processes that a dying agent leaves
/// behind. `own_part` is the descriptor of this agent's own part of the job (own_part.hpp), or -1.
[[nodiscard]] int run_remote_agent(int own_part);

}  // namespace hvd::launcher
