#include "transport/agent_link.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/version.hpp>

#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "supervise/start_process.hpp"

namespace hvd::launcher {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

/// The time that an agent of this host may take to end after `close`. It kills the rest of its
/// ranks within 2 s.
constexpr milliseconds kPatience{3'000};
/// The same time for the ssh or srun client that leads to a remote agent. That agent kills the rest
/// of its ranks within 2 s even when its client has been killed.
constexpr milliseconds kRemotePatience{1'500};
/// The time that the process, an agent or such a client, may run on after its stream has ended.
constexpr milliseconds kEndPatience{500};
/// The time that is waited for processes that were killed, which end at once unless they are stuck
/// in the kernel.
constexpr milliseconds kKillPatience{500};
constexpr std::size_t kMaxStderr = 4'096;

}  // namespace

AgentLink::AgentLink(boost::asio::io_context& io, const AgentCommand& command)
    : heartbeat_(io), end_timer_(io) {
  loss_.via = command.via;
  const bool remote = !command.via.empty();
  SocketPair sockets = make_socket_pair(SOCK_STREAM);
  Pipe errors;
  if (remote) errors = make_pipe();
  UniqueFd first_input;
  auto arguments = command.arguments;
  if (command.standard_input >= 0) {
    first_input = UniqueFd(::dup(command.standard_input));  // survives exec
    if (first_input) arguments.push_back(std::to_string(first_input.get()));
  }
  pid_ = start_process({.path = command.path,
                        .arguments = arguments,
                        .variables = command.variables,
                        .input = sockets.theirs.get(),
                        .output = sockets.theirs.get(),
                        .error = remote ? errors.write.get() : STDERR_FILENO,
                        .new_session = true,
                        // ssh would not notice over a dead network; the agent of this host sees the
                        // stream end and ends its ranks first.
                        .die_with_parent = remote});
  UniqueFd pidfd = open_pidfd(pid_);
  process_.emplace(io, pidfd.get());
  (void)pidfd.release();
  UniqueFd output = duplicate(sockets.ours.get());
  stream_.emplace(io, std::move(sockets.ours), std::move(output));
  if (remote) {
    stderr_.emplace(io, errors.read.get());
    (void)errors.read.release();
    stderr_->non_blocking(true);
  }
}

AgentLink::AgentLink(boost::asio::io_context& io, UniqueFd stream, std::string via)
    : heartbeat_(io), end_timer_(io) {
  loss_.via = std::move(via);
  UniqueFd output = duplicate(stream.get());
  stream_.emplace(io, std::move(stream), std::move(output));
}

AgentLink::~AgentLink() {
  close();
  if (pid_ < 0) {
    stream_->drain(*closed_, *closed_ + silence_limit_);
    reap_group();
    return;
  }
  const auto left = std::chrono::ceil<milliseconds>(*closed_ - Clock::now());
  pollfd ended{.fd = process_->native_handle(), .events = POLLIN, .revents = 0};
  (void)::poll(&ended, 1, static_cast<int>(std::max(left, milliseconds{0}).count()));
  kill_process();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  group_ = pid_;
  reap_group();
}

/// Kills the process if it runs, and all that ssh has started, as for a jump host. It may be called
/// until the process is waited for. A child of srun is spared: it ends the step after srun.
void AgentLink::kill_process() const {
  if (pid_ >= 0) ::kill(loss_.via == "ssh" ? -pid_ : pid_, SIGKILL);
}

/// Waits for what ssh has left behind, which was killed and which this process has adopted.
void AgentLink::reap_group() const {
  if (group_ < 0) return;
  const Deadline deadline = Clock::now() + kKillPatience;
  for (pid_t ended = 0; (ended = ::waitpid(-group_, nullptr, WNOHANG)) >= 0;) {
    if (ended == 0 && Clock::now() >= deadline) return;
    if (ended == 0) ::poll(nullptr, 0, 1);
  }
}

void AgentLink::close() {
  if (closed_) return;
  closed_ = Clock::now() + (!loss_.via.empty() ? kRemotePatience : kPatience);
  heartbeat_.stop();
  end_timer_.cancel();
  // The process that this object has started ends with its stream. Another agent still has to read
  // the end of the job.
  process_ ? stream_->close() : stream_->finish();
  if (pid_ < 0) return stop_waiting();
  end_timer_.expires_at(*closed_);
  end_timer_.async_wait([this](error_code error) {
    if (!error) kill_process();
  });
}

/// A queued handler may start one more operation, which fails at once on the closed stream and
/// queues its own handler. That one runs after the first handler posted here and before the second.
void AgentLink::destroy_later(boost::asio::io_context& io, std::unique_ptr<AgentLink> ended) {
  boost::asio::post(io, [&io, link = std::move(ended)]() mutable {
    boost::asio::post(io, [last = std::move(link)] {});
  });
}

void AgentLink::stop_waiting() {
  error_code ignored;
  if (process_) process_->close(ignored);
  if (stderr_) stderr_->close(ignored);
  end_timer_.cancel();
}

void AgentLink::start(milliseconds host_timeout, Handlers handlers) {
  silence_limit_ = LinkHeartbeat::limit(host_timeout);
  handlers_ = std::move(handlers);
  stream_->when_flushed([this] {
    if (!closed_ && handlers_.on_flushed) handlers_.on_flushed();
  });
  stream_->await_greeting([this](const std::string& version) { on_greeting(version); },
                          [this](const std::string& chatter) {
                            said_ = chatter + said_;
                            on_stream_end(chatter);
                          });
  if (stderr_) read_stderr();
  watch();
  // A node has joined, so it runs and greets at once.
  if (loss_.via == kViaNode) start_heartbeat();
}

void AgentLink::on_greeting(const std::string& theirs) {
  if (theirs != version()) {
    loss_.other_version = theirs;
    if (pid_ < 0) return lose();
    return kill_process();
  }
  loss_.greeted = true;
  said_.clear();
  stream_->start(
      [this](const Frame& frame) {
        heartbeat_.heard();
        if (std::holds_alternative<Beat>(frame)) return;
        if (std::holds_alternative<Suspend>(frame)) return heartbeat_.expect_silence();
        if (!closed_ && handlers_.on_frame) handlers_.on_frame(frame);
      },
      [this](const std::string& why) { on_stream_end(why); });
  heartbeat_.heard();
  if (!closed_ && handlers_.on_ready) handlers_.on_ready();
  if (!closed_ && loss_.via != kViaNode) start_heartbeat();
}

void AgentLink::send(const Frame& frame) {
  last_is_suspend_ = std::holds_alternative<Suspend>(frame);
  stream_->send(frame);
}

void AgentLink::start_heartbeat() {
  if (loss_.via.empty() || silence_limit_ <= milliseconds{0}) return;
  heartbeat_.start(
      silence_limit_, [this] { send(Beat{}); },
      [this] {
        loss_.silent = silence_limit_;
        lose();
      });
}

/// The process gets some time to end by itself, since its wait status shows why the agent ended: an
/// agent that leaves kills its ranks after it has closed its stream, and ssh exits with the code of
/// the remote agent.
void AgentLink::on_stream_end(const std::string& why) {
  if (!process_) {
    said_ = why;
    return lose();
  }
  if (pid_ < 0) return;
  end_timer_.expires_after(kEndPatience);
  end_timer_.async_wait([this](error_code error) {
    if (!error) kill_process();
  });
}

void AgentLink::read_stderr() {
  stderr_->async_read_some(boost::asio::buffer(buffer_),
                           [this](error_code error, std::size_t size) {
                             if (error) return;
                             take_stderr({buffer_.data(), size});
                             read_stderr();
                           });
}

void AgentLink::take_stderr(std::string_view text) {
  said_ += text;
  if (said_.size() > kMaxStderr) said_.erase(0, said_.size() - kMaxStderr);
  if (!closed_ && handlers_.on_stderr) handlers_.on_stderr(std::string(text));
}

/// Reads what was written to stderr before the process ended and has not been read yet.
void AgentLink::drain_stderr() {
  if (!stderr_) return;
  error_code ignored;
  stderr_->cancel(ignored);
  ssize_t size = 0;
  while ((size = ::read(stderr_->native_handle(), buffer_.data(), buffer_.size())) > 0) {
    take_stderr({buffer_.data(), static_cast<std::size_t>(size)});
  }
}

void AgentLink::watch() {
  if (!process_) return;
  process_->async_wait(boost::asio::posix::descriptor_base::wait_read, [this](error_code error) {
    if (error) return;
    kill_process();
    if (::waitpid(pid_, &loss_.status, WNOHANG) != pid_) return;
    group_ = std::exchange(pid_, -1);
    closed_ ? stop_waiting() : lose();
  });
}

void AgentLink::lose() {
  drain_stderr();
  loss_.last_stderr = last_stderr(said_);
  kill_process();
  stream_->close();
  heartbeat_.stop();
  end_timer_.cancel();
  if (!closed_ && handlers_.on_lost) std::exchange(handlers_.on_lost, nullptr)(loss_);
}

}  // namespace hvd::launcher
