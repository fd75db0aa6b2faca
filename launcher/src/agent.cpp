#include "agent.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/network_interfaces.hpp>
#include <hvd/core/version.hpp>

#include "block_signals.hpp"
#include "descendants.hpp"
#include "descriptors.hpp"
#include "exit_codes.hpp"
#include "omp_threads.hpp"
#include "own_environment.hpp"
#include "process_usage.hpp"
#include "program.hpp"
#include "spawn.hpp"
#include "text.hpp"
#include "this_host.hpp"

namespace hvd::launcher {
namespace {

using boost::system::error_code;

/// After SIGKILL processes go at once, but for those stuck in the kernel.
constexpr std::chrono::milliseconds kKillDeadline{2'000};

}  // namespace

Agent::Agent(UniqueFd input, UniqueFd output, UniqueFd stdin_of_first,
             std::optional<NodeHooks> node)
    : stream_(io_, std::move(input), std::move(output)),
      child_signal_(io_),
      end_signal_(io_),
      heartbeat_(io_),
      grace_timer_(io_),
      gpus_(io_),
      stdin_of_first_(std::move(stdin_of_first)),
      node_(std::move(node)) {
  become_subreaper();
  ::signal(SIGPIPE, SIG_IGN);
  child_signal_.add(SIGCHLD);
  end_signal_.add(SIGTERM);
  if (!node_) return;
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) end_signal_.add(signal);
}

int Agent::run() {
  watch_children();
  watch_end_signals();
  stream_.greet();
  stream_.start([this](const Frame& frame) { on_frame(frame); },
                [this](const std::string&) {
                  // hvdrun is gone, or done with this host.
                  kill_all();
                  io_.stop();
                });
  try {
    io_.run();
  } catch (...) {
    kill_all();
    throw;
  }
  return code_;
}

void Agent::watch_end_signals() {
  end_signal_.async_wait([this](error_code error, int signal) {
    if (error) return;
    if (node_ && ::getppid() == node_->parent) {
      stream_.send(Forward{.signal = signal});
      watch_end_signals();
      return;
    }
    code_ = kExitSignalBase + signal;
    stream_.close();  // ranks that end from here on did not end by themselves
    kill_all();
    io_.stop();
  });
}

void Agent::on_frame(const Frame& frame) {
  heartbeat_.heard();
  try {
    if (const auto* job = std::get_if<Prepare>(&frame)) {
      Prepare own = *job;
      if (node_) node_->on_prepare(own);
      prepare(own);
    } else if (const auto* start = std::get_if<Launch>(&frame)) {
      Launch own = *start;
      if (node_) node_->on_launch(own);
      launch(own);
    } else if (const auto* over = std::get_if<Over>(&frame)) {
      if (node_) node_->on_over(*over);
    } else if (std::holds_alternative<Ask>(frame)) {
      tell_status();
    } else if (std::holds_alternative<Suspend>(frame)) {
      heartbeat_.expect_silence();
    } else if (const auto* forward = std::get_if<Forward>(&frame)) {
      signal_all(forward->signal);
    } else if (const auto* last = std::get_if<End>(&frame)) {
      end(last->signal, last->grace);
    } else if (const auto* more = std::get_if<Credit>(&frame)) {
      credit_ = std::min<std::size_t>(credit_ + more->bytes, kOutputWindow);
      for_each_pipe([this](OutputPipe& pipe) { pump(pipe); });
    }
  } catch (const LaunchError& error) {
    refuse(error.code(), error.what());
  } catch (const Error& error) {
    refuse(error.code() == Errc::resource           ? kExitResource
           : error.code() == Errc::invalid_argument ? kExitUsage
                                                    : kExitInternal,
           error.what());
  }
}

void Agent::prepare(const Prepare& frame) {
  if (job_) return;
  if (frame.version != version()) {
    throw LaunchError(kExitProtocol, fmt::format("hvdrun is {} there and {} on {}", frame.version,
                                                 version(), own_host_name()));
  }
  job_ = frame;
  if (frame.beats) {
    heartbeat_.start([this] { stream_.send(Beat{}); },
                     [this] {
                       // hvdrun, its machine or the network is gone.
                       stream_.close();
                       kill_all();
                       io_.stop();
                     });
  }
  if (::chdir(frame.directory.c_str()) != 0) {
    throw LaunchError(kExitNotFound, fmt::format("cannot change to {}: {}",
                                                 in_quotes(frame.directory), error_text(errno)));
  }
  variables_ = merge(inherited_variables(own_environment()), frame.environment);
  if (!frame.interfaces.empty()) {
    variables_ =
        merge(interface_variables(reachable_address(frame.interfaces).interface), variables_);
  }
  const Variables of_first =
      frame.ranks.empty() ? variables_ : merge(variables_, frame.ranks[0].variables);
  path_ = find_program(frame.program.front(), value_of(of_first, "PATH"));
  if (!contains(of_first, "OMP_NUM_THREADS")) {
    threads_ = omp_threads(static_cast<int>(frame.ranks.size()));
  }
  secret_ = frame.secret.to_inheritable_fd();
  Prepared prepared{.hostname = own_host_name(), .threads = threads_};
  if (frame.meeting != Meeting::elsewhere) {
    const BlockSignals blocked;  // SIGCHLD is for this thread
    rendezvous_.emplace(frame);
    prepared.store = rendezvous_->store();
    prepared.master_host = rendezvous_->host();
    prepared.master_port = rendezvous_->port();
  }
  stream_.send(prepared);
}

void Agent::launch(const Launch& frame) {
  if (!job_ || launched_) return;
  launched_ = true;
  variables_ = merge(variables_, frame.variables);
  start_next_rank();
}

/// One at a time: between two of them signs of life go out, and orders come in.
void Agent::start_next_rank() {
  if (ending_ || done_) return all_started();
  try {
    if (ranks_.size() < job_->ranks.size()) start_rank(ranks_.size());
  } catch (const LaunchError& error) {
    give_up(error.code(), error.what());
    return;
  }
  if (ranks_.size() == job_->ranks.size()) return all_started();
  boost::asio::post(io_, [this] { start_next_rank(); });
}

/// Not all ranks can be started: none shall run.
void Agent::give_up(int code, const std::string& why) {
  for (const auto& rank : ranks_) ::kill(-rank->pid, SIGKILL);
  ranks_.clear();  // nobody needs to hear of them, and looking around takes descriptors
  kill_all();
  done_ = true;  // `Refused` takes the place of `Done`
  refuse(code, why);
}

void Agent::all_started() {
  all_started_ = true;
  secret_.reset();
  stdin_of_first_.reset();
  for (const auto& rank : ranks_) watch(*rank);
  check_done();
}

void Agent::start_rank(std::size_t local_rank) {
  const Prepare::Rank& spec = job_->ranks[local_rank];
  Variables added = {fmt::format("HVD_SECRET_FD={}", secret_.get())};
  if (threads_ > 0) added.push_back(fmt::format("OMP_NUM_THREADS={}", threads_));
  const UniqueFd null = open_null();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  InquiryPair inquiry = make_inquiry_pair();
  added.push_back(fmt::format("HVD_STATUS_FD={}", inquiry.of_rank.get()));
  const pid_t pid =
      spawn({.path = path_,
             .arguments = job_->program,
             .variables = merge(merge(variables_, spec.variables), added),
             .input = local_rank == 0 && stdin_of_first_ ? stdin_of_first_.get() : null.get(),
             .output = out.write.get(),
             .error = err.write.get(),
             .die_with_parent = true,
             .limit = &limit_});
  ranks_.push_back(std::make_unique<RankProcess>(io_, spec.rank, pid, open_pidfd(pid),
                                                 std::move(out.read), std::move(err.read),
                                                 std::move(inquiry.ours)));
  stream_.send(Started{.rank = spec.rank, .pid = pid});
}

/// What the system knows of a rank at once, and what the rank says when it does.
void Agent::tell_status() {
  for (const auto& rank : ranks_) {
    if (!rank->running) continue;
    rank->inquiry.ask([this, number = rank->rank](Bytes bytes) {
      stream_.send(RankSays{.rank = number, .bytes = std::move(bytes)});
    });
  }
  // Ranks that are yet to start shall not inherit what NVML opens.
  if (!all_started_ || ending_) return tell_usage({});
  gpus_.look([this](std::span<const GpuState> gpus) { tell_usage(gpus); });
}

void Agent::tell_usage(std::span<const GpuState> gpus) {
  for (const auto& rank : ranks_) {
    if (!rank->running) continue;
    const ProcessUsage usage = usage_of(rank->pid, gpus);
    stream_.send(RankUsage{.rank = rank->rank,
                           .cpu = usage.cpu,
                           .memory = usage.memory,
                           .gpu_memory = usage.gpu.memory,
                           .gpu_load = usage.gpu.load});
  }
}

void Agent::refuse(int code, const std::string& message) {
  stream_.send(Refused{.code = code, .message = message});
}

// ---- watching

void Agent::watch(RankProcess& rank) {
  rank.ended.async_wait(boost::asio::posix::descriptor_base::wait_read,
                        [this, &rank](error_code error) {
                          if (!error) on_rank_ended(rank);
                        });
  pump(rank.out);
  pump(rank.err);
}

void Agent::on_rank_ended(RankProcess& rank) {
  if (!rank.running) return;
  // Not yet waited for, it still holds its process group's number: nobody else can be hit.
  if (!ending_) ::kill(-rank.pid, SIGKILL);
  int status = 0;
  if (::waitpid(rank.pid, &status, WNOHANG) != rank.pid) return;
  record_exit(rank, status);
  sweep();
  check_done();
}

void Agent::record_exit(RankProcess& rank, int status) {
  using std::chrono::duration_cast;
  rank.running = false;
  const auto elapsed = duration_cast<std::chrono::milliseconds>(Clock::now() - rank.started);
  const bool success = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  stream_.send(Exited{.rank = rank.rank,
                      .status = status,
                      .elapsed = elapsed,
                      .deserted = success && rank.inquiry.deserted()});
}

void Agent::watch_children() {
  child_signal_.async_wait([this](error_code error, int) {
    if (error) return;
    sweep();
    check_done();
    watch_children();
  });
}

/// Looks after adopted orphans: waits for the dead ones, and ends those whose rank is over. A
/// wrapper script's children lose their parent this way, in whatever session they are.
void Agent::sweep() {
  for (const pid_t pid : children_of(::getpid())) {
    const auto own = [pid](const auto& rank) { return rank->running && rank->pid == pid; };
    if (std::any_of(ranks_.begin(), ranks_.end(), own)) continue;
    if (::waitpid(pid, nullptr, WNOHANG) != 0 || ending_) continue;
    const std::string of = variable_of(pid, "HVD_RANK");
    const auto over = [&of](const auto& rank) {
      return !rank->running && std::to_string(rank->rank) == of;
    };
    if (std::any_of(ranks_.begin(), ranks_.end(), over)) ::kill(pid, SIGKILL);
  }
}

// ---- ending

void Agent::end(int signal, std::chrono::milliseconds grace) {
  ending_ = true;
  if (!std::exchange(launched_, true)) all_started_ = true;  // nothing starts from here on
  if (signal == SIGKILL || grace == std::chrono::milliseconds{0}) {
    kill_all();
    check_done();
    return;
  }
  signal_all(signal);
  signal_all(SIGCONT);  // a stopped process acts on the signal when it goes on
  grace_timer_.expires_after(grace);
  grace_timer_.async_wait([this](error_code error) {
    if (error) return;
    kill_all();
    check_done();
  });
  check_done();  // there may be nothing to wait for
}

/// Every process once: the groups of running ranks as a whole, everything else by itself. The group
/// of a rank that was waited for is not named: its number may belong to somebody else by now.
void Agent::signal_all(int signal) {
  const auto descendants = descendants_of(::getpid());
  std::vector<pid_t> groups;
  for (const auto& rank : ranks_) {
    if (rank->running) groups.push_back(rank->pid);
  }
  for (const pid_t group : groups) ::kill(-group, signal);
  for (const pid_t pid : descendants) {
    if (std::find(groups.begin(), groups.end(), ::getpgid(pid)) == groups.end()) {
      ::kill(pid, signal);
    }
  }
}

void Agent::kill_all() {
  killed_ = true;
  grace_timer_.cancel();
  (void)kill_descendants(
      [this](pid_t pid, int status) {
        for (const auto& rank : ranks_) {
          if (rank->running && rank->pid == pid) record_exit(*rank, status);
        }
      },
      Clock::now() + kKillDeadline);
}

/// All ranks are over: ends what they left behind, sends the rest of their output, says `Done`.
void Agent::check_done() {
  const auto running = [](const auto& rank) { return rank->running; };
  if (done_ || !all_started_ || std::any_of(ranks_.begin(), ranks_.end(), running)) return;
  if (!all_gone_) {
    if (!ending_) kill_all();
    pid_t orphan = 0;
    while ((orphan = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (orphan == 0 && ending_ && !killed_) return;  // descendants still have their grace
    all_gone_ = true;
    grace_timer_.cancel();
    stream_.send(Gone{});
    for_each_pipe([this](OutputPipe& pipe) {
      if (pipe.waiting) on_readable(pipe);
    });
  }
  bool drained = true;
  for_each_pipe([&](OutputPipe& pipe) { drained = drained && !pipe.open; });
  if (!drained || done_) return;
  done_ = true;
  stream_.send(Done{});
}

// ---- output

void Agent::for_each_pipe(const std::function<void(OutputPipe&)>& action) {
  for (const auto& rank : ranks_) {
    action(rank->out);
    action(rank->err);
  }
}

/// Waits for bytes as long as there is credit to send them; without it the rank's pipe fills up and
/// the rank waits, which is what bounds the memory a flood of output takes.
void Agent::pump(OutputPipe& pipe) {
  if (!pipe.open || pipe.waiting || credit_ == 0) return;
  pipe.waiting = true;
  auto handler = [this, &pipe](error_code error) {
    if (error || !pipe.waiting) return;
    on_readable(pipe);
    check_done();
  };
  if (all_gone_) {
    boost::asio::post(io_, [handler] { handler({}); });
  } else {
    pipe.descriptor.async_wait(boost::asio::posix::descriptor_base::wait_read, handler);
  }
}

void Agent::on_readable(OutputPipe& pipe) {
  pipe.waiting = false;
  if (!pipe.open || credit_ == 0) return;
  Output frame{.rank = pipe.rank, .stream = pipe.stream, .bytes = {}};
  frame.bytes.resize(std::min(credit_, kMaxOutput));
  const ssize_t size =
      ::read(pipe.descriptor.native_handle(), frame.bytes.data(), frame.bytes.size());
  if (size > 0) {
    frame.bytes.resize(static_cast<std::size_t>(size));
    credit_ -= frame.bytes.size();
    stream_.send(frame);
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR) || all_gone_) {
    // With every writer gone, a pipe without bytes is at its end, whoever else may hold it open.
    pipe.open = false;
    error_code ignored;
    pipe.descriptor.close(ignored);
    return;
  }
  pump(pipe);
}

}  // namespace hvd::launcher
