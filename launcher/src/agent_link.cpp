#include "agent_link.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.hpp"
#include "descriptors.hpp"
#include "exit_codes.hpp"
#include "own_environment.hpp"
#include "spawn.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

std::string how_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by {}", signal_name(WTERMSIG(status)));
  return fmt::format("exited {}", WEXITSTATUS(status));
}

}  // namespace

AgentLink::AgentLink(boost::asio::io_context& io, int standard_input) {
  Pipe sockets = make_socket_pair();
  UniqueFd first_input;
  std::vector<std::string> arguments = {"hvdrun", std::string(kAgentArgument)};
  if (standard_input >= 0) {
    first_input = UniqueFd(::dup(standard_input));  // survives exec
    if (first_input) arguments.push_back(std::to_string(first_input.get()));
  }
  pid_ = spawn({.path = "/proc/self/exe",
                .arguments = arguments,
                .variables = own_environment(),
                .input = sockets.write.get(),
                .output = sockets.write.get(),
                .error = STDERR_FILENO,
                .new_session = true});
  UniqueFd pidfd = open_pidfd(pid_);
  process_.emplace(io, pidfd.get());
  (void)pidfd.release();
  UniqueFd output = duplicate(sockets.read.get());
  stream_.emplace(io, std::move(sockets.read), std::move(output));
}

AgentLink::~AgentLink() {
  stream_->close();
  if (pid_ < 0) return;
  constexpr int kPatienceMs = 3'000;  // it kills what is left within 2 s
  pollfd ended{.fd = process_->native_handle(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, kPatienceMs) <= 0) ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void AgentLink::start(std::function<void(Frame)> on_frame,
                      std::function<void(std::string)> on_lost) {
  on_lost_ = std::move(on_lost);
  // An agent that closes its stream is of no use any more: its end as a process tells why.
  stream_->start(std::move(on_frame), [this](const std::string&) {
    if (pid_ >= 0) ::kill(pid_, SIGKILL);
  });
  watch();
}

void AgentLink::watch() {
  process_->async_wait(boost::asio::posix::descriptor_base::wait_read,
                       [this](boost::system::error_code error) {
                         if (error) return;
                         int status = 0;
                         if (::waitpid(pid_, &status, WNOHANG) != pid_) return;
                         pid_ = -1;
                         stream_->close();
                         if (on_lost_) on_lost_(how_ended(status));
                       });
}

int run_agent(int stdin_of_first) {
  UniqueFd input = duplicate(STDIN_FILENO);
  UniqueFd output = duplicate(STDOUT_FILENO);
  UniqueFd first_input;
  if (stdin_of_first >= 0) {
    first_input = duplicate(stdin_of_first);
    ::close(stdin_of_first);
  }
  ::prctl(PR_SET_NAME, "hvdrun-agent");
  // Nothing that is printed by accident may get between the frames.
  const UniqueFd null = open_null();
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  Agent(std::move(input), std::move(output), std::move(first_input)).run();
  return 0;
}

}  // namespace hvd::launcher
