#include "supervise/rank_group.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "plan/rank_environment.hpp"
#include "supervise/descendants.hpp"

namespace hvd::launcher {

using boost::asio::posix::descriptor_base;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

/// A process has no environment for so long, at most, while it executes a program.
constexpr milliseconds kLongestExec{1'000};

}  // namespace

RankGroup::OutputPipe::OutputPipe(boost::asio::io_context& io, UniqueFd end)
    : descriptor(io, end.get()) {
  (void)end.release();
  descriptor.non_blocking(true);
}

RankGroup::RankGroup(boost::asio::io_context& io, Descendants descendants, Handlers handlers)
    : io_(io),
      owns_descendants_(descendants == Descendants::belong_to_the_group),
      handlers_(std::move(handlers)),
      sweep_timer_(io),
      grace_timer_(io) {
  if (!owns_descendants_) return;
  become_subreaper();
  child_signal_.emplace(io_, SIGCHLD);
  watch_children();
}

// ---- starting

pid_t RankGroup::start(int number, StartRequest request) {
  std::array<Pipe, 2> pipes;
  const std::array<int*, 2> ends = {&request.output, &request.error};
  for (std::size_t stream = 0; stream < ends.size(); ++stream) {
    if (*ends[stream] >= 0) continue;
    pipes[stream] = make_pipe();
    *ends[stream] = pipes[stream].write.get();
  }
  SocketPair inquiry = make_socket_pair(SOCK_SEQPACKET);
  request.inherited.push_back(inquiry.theirs.get());
  request.variables =
      merge(request.variables, {fmt::format("HVD_STATUS_FD={}", inquiry.theirs.get())});
  const pid_t pid = start_process(request);
  UniqueFd ended;
  try {
    ended = open_pidfd(pid);
  } catch (const LaunchError&) {
    ::kill(owns_descendants_ ? -pid : pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw;
  }
  auto rank = std::make_unique<Rank>(Rank{.rank = number,
                                          .pid = pid,
                                          .ended = {io_, ended.get()},
                                          .inquiry = {io_, std::move(inquiry.ours)}});
  (void)ended.release();
  for (std::size_t stream = 0; stream < ends.size(); ++stream) {
    if (pipes[stream].read) rank->pipes[stream].emplace(io_, std::move(pipes[stream].read));
  }
  ranks_.push_back(std::move(rank));
  if (watching_) watch(ranks_.size() - 1);
  return pid;
}

void RankGroup::watch() {
  watching_ = true;
  for (std::size_t index = 0; index < ranks_.size(); ++index) watch(index);
  check_done();
}

void RankGroup::watch(std::size_t index) {
  wait_for_end(index);
  for (const Stream stream : {Stream::out, Stream::err}) {
    auto& pipe = ranks_[index]->pipes[static_cast<std::size_t>(stream)];
    if (pipe) pump(index, stream, *pipe);
  }
}

// ---- watching

bool RankGroup::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->running; });
}

void RankGroup::wait_for_end(std::size_t index) {
  ranks_[index]->ended.async_wait(descriptor_base::wait_read, [this, index](error_code error) {
    if (!error) on_rank_ended(index);
  });
}

void RankGroup::on_rank_ended(std::size_t index) {
  const Rank& rank = *ranks_[index];
  if (!rank.running) return;
  // Until the rank is waited for, no other process group can have its number.
  if (owns_descendants_ && !ending_) ::kill(-rank.pid, SIGKILL);
  int status = 0;
  if (::waitpid(rank.pid, &status, WNOHANG) == 0) return wait_for_end(index);
  record_exit(index, status);
  if (owns_descendants_) sweep();
  check_done();
}

void RankGroup::record_exit(std::size_t index, int status) {
  Rank& rank = *ranks_[index];
  rank.running = false;
  const auto elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - rank.started);
  const RankEnd end =
      rank.inquiry.complete({.rank = rank.rank, .status = status, .elapsed = elapsed});
  // An elastic job may start and lose any number of ranks.
  error_code ignored;
  rank.ended.close(ignored);
  rank.inquiry.close();
  handlers_.on_exit(index, end);
}

void RankGroup::watch_children() {
  child_signal_->async_wait([this](error_code error, int) {
    if (error) return;
    sweep();
    check_done();
    watch_children();
  });
}

/// Handles the orphans that this process has adopted. It waits for those that have ended, and ends
/// those whose rank has ended. The children of a wrapper script become orphans when the script
/// ends. As long as a process has no environment, all are looked at again, after `again` and then
/// after ever twice that time, up to `kLongestExec`: it may execute a program, or never have one.
void RankGroup::sweep(milliseconds again) {
  bool unclear = false;
  for (const pid_t pid : children_of(::getpid())) {
    const auto is_rank = [pid](const auto& rank) { return rank->running && rank->pid == pid; };
    if (std::any_of(ranks_.begin(), ranks_.end(), is_rank)) continue;
    if (::waitpid(pid, nullptr, WNOHANG) != 0 || ending_) continue;
    const auto number = variable_of(pid, open_ ? "HVD_WORKER" : "HVD_RANK");
    unclear = unclear || !number;
    const auto over = [&number](const auto& rank) {
      return !rank->running && std::to_string(rank->rank) == number;
    };
    if (std::any_of(ranks_.begin(), ranks_.end(), over)) ::kill(pid, SIGKILL);
  }
  if (!unclear || again > kLongestExec) return;
  sweep_timer_.expires_after(again);
  sweep_timer_.async_wait([this, again](error_code error) {
    if (error || done_) return;
    sweep(2 * again);
    check_done();
  });
}

// ---- ending

void RankGroup::end(const End& order) {
  ending_ = true;
  if (order.signal == SIGKILL || order.grace == milliseconds{0}) {
    kill();
    check_done();
    return;
  }
  signal(order.signal);
  signal(SIGCONT);  // a stopped process handles the signal only when it continues
  kill_after(order.grace, false);
  check_done();  // there may be nothing to wait for
}

void RankGroup::kill_after(milliseconds grace, bool extended) {
  grace_timer_.expires_after(grace);
  grace_timer_.async_wait([this, grace, extended](error_code error) {
    if (error) return;
    const bool stop = std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
      return rank->running && rank->inquiry.stops();
    });
    if (stop && !extended) return kill_after(grace, true);
    kill();
    check_done();
  });
}

/// Sends the signal once to every process: to the process groups of running ranks as a whole, and
/// to each other process by itself. The group of a rank that was waited for gets no signal, since
/// its number may belong to another process by now.
void RankGroup::signal(int signal) {
  std::vector<pid_t> running;
  for (const auto& rank : ranks_) {
    if (rank->running) running.push_back(rank->pid);
  }
  if (!owns_descendants_) {
    for (const pid_t pid : running) ::kill(pid, signal);
    return;
  }
  const auto descendants = descendants_of(::getpid());
  for (const pid_t group : running) ::kill(-group, signal);
  for (const pid_t pid : descendants) {
    if (std::find(running.begin(), running.end(), ::getpgid(pid)) == running.end()) {
      ::kill(pid, signal);
    }
  }
}

void RankGroup::kill(std::size_t index) {
  const Rank& rank = *ranks_.at(index);
  if (rank.running) ::kill(owns_descendants_ ? -rank.pid : rank.pid, SIGKILL);
}

void RankGroup::kill() {
  killed_ = true;
  grace_timer_.cancel();
  if (!owns_descendants_) return signal(SIGKILL);
  (void)kill_descendants(
      [this](pid_t pid, int status) {
        for (std::size_t index = 0; index < ranks_.size(); ++index) {
          if (ranks_[index]->running && ranks_[index]->pid == pid) record_exit(index, status);
        }
      },
      Clock::now() + kKillDeadline);
}

void RankGroup::abandon() {
  done_ = true;
  const auto ranks = std::exchange(ranks_, {});
  for (const auto& rank : ranks) {
    if (rank->running) ::kill(owns_descendants_ ? -rank->pid : rank->pid, SIGKILL);
  }
  if (owns_descendants_) return kill();
  for (const auto& rank : ranks) {
    while (rank->running && ::waitpid(rank->pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

/// Once all ranks have ended, this ends their remaining descendants and passes on the rest of the
/// output.
void RankGroup::check_done() {
  if (done_ || !watching_ || any_running() || (open_ && !ending_)) return;
  if (!gone_) {
    if (owns_descendants_) {
      if (!ending_) kill();
      pid_t orphan = 0;
      while ((orphan = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
      }
      if (orphan == 0 && ending_ && !killed_) return;  // descendants still have their grace
    }
    gone_ = true;
    grace_timer_.cancel();
    handlers_.on_gone();
    for_each_pipe([this](std::size_t index, Stream stream, OutputPipe& pipe) {
      if (pipe.waiting) on_readable(index, stream, pipe);
    });
  }
  bool drained = true;
  for_each_pipe(
      [&](std::size_t, Stream, const OutputPipe& pipe) { drained = drained && !pipe.open; });
  if (!drained || done_) return;
  done_ = true;
  handlers_.on_done();
}

// ---- output

void RankGroup::for_each_pipe(const std::function<void(std::size_t, Stream, OutputPipe&)>& action) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    for (const Stream stream : {Stream::out, Stream::err}) {
      auto& pipe = ranks_[index]->pipes[static_cast<std::size_t>(stream)];
      if (pipe) action(index, stream, *pipe);
    }
  }
}

void RankGroup::add_credit(std::size_t bytes) {
  credit_ = std::min<std::size_t>(credit_ + bytes, kOutputWindow);
  for_each_pipe(
      [this](std::size_t index, Stream stream, OutputPipe& pipe) { pump(index, stream, pipe); });
}

bool RankGroup::use_credit(std::size_t bytes) {
  if (credit_ < bytes) return false;
  credit_ -= bytes;
  return true;
}

void RankGroup::pump(std::size_t index, Stream stream, OutputPipe& pipe) {
  if (!watching_ || !pipe.open || pipe.waiting || credit_ == 0) return;
  pipe.waiting = true;
  auto handler = [this, index, stream, &pipe](error_code error) {
    if (error || !pipe.waiting) return;
    on_readable(index, stream, pipe);
    check_done();
  };
  if (gone_) {
    boost::asio::post(io_, [handler] { handler({}); });
  } else {
    pipe.descriptor.async_wait(descriptor_base::wait_read, handler);
  }
}

void RankGroup::on_readable(std::size_t index, Stream stream, OutputPipe& pipe) {
  pipe.waiting = false;
  if (!pipe.open || credit_ == 0) return;
  Bytes bytes(std::min(credit_, kMaxOutput));
  const ssize_t size = ::read(pipe.descriptor.native_handle(), bytes.data(), bytes.size());
  if (size > 0) {
    bytes.resize(static_cast<std::size_t>(size));
    credit_ -= bytes.size();
    handlers_.on_output(index, stream, std::move(bytes));
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR) || gone_) {
    // All writers have ended, so an empty pipe is at its end, even if some process holds it open.
    pipe.open = false;
    error_code ignored;
    pipe.descriptor.close(ignored);
    return;
  }
  pump(index, stream, pipe);
}

}  // namespace hvd::launcher
