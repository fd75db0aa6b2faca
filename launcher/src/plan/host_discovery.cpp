#include "plan/host_discovery.hpp"

#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "supervise/start_process.hpp"

namespace hvd::launcher {
namespace {

using boost::asio::posix::descriptor_base;
using boost::system::error_code;

constexpr std::size_t kMaxText = std::size_t{1} << 20;

}  // namespace

HostDiscovery::HostDiscovery(boost::asio::io_context& io, Options options, Handlers handlers)
    : io_(io), options_(std::move(options)), handlers_(std::move(handlers)), timer_(io) {
  timer_.expires_after(std::chrono::milliseconds{0});
  start_later();
}

HostDiscovery::~HostDiscovery() {
  if (pid_ > 0) (void)kill_and_wait();
}

void HostDiscovery::start_later() {
  timer_.async_wait([this](error_code error) {
    if (!error) start();
  });
}

void HostDiscovery::start() {
  try {
    Pipe pipe = make_pipe();
    const UniqueFd null = open_null();
    StartRequest request;
    request.path = "/bin/sh";
    request.arguments = {"sh", "-c", options_.command};
    request.variables = options_.variables;
    request.input = null.get();
    request.output = pipe.write.get();
    request.error = STDERR_FILENO;
    request.die_with_parent = true;
    pid_ = start_process(request);
    UniqueFd ended = open_pidfd(pid_);
    ended_.emplace(io_, ended.get());
    (void)ended.release();
    output_.emplace(io_, pipe.read.get());
    (void)pipe.read.release();
    output_->non_blocking(true);
  } catch (const LaunchError& error) {
    if (pid_ > 0) (void)kill_and_wait();
    timer_.expires_after(options_.pause);
    start_later();
    handlers_.on_failure(error.what());
    return;
  }
  text_.clear();
  read();
  ended_->async_wait(descriptor_base::wait_read, [this](error_code error) {
    if (!error) on_ended();
  });
}

void HostDiscovery::read() {
  output_->async_read_some(boost::asio::buffer(buffer_),
                           [this](error_code error, std::size_t size) {
                             if (error || text_.size() > kMaxText) return;
                             text_.append(buffer_.data(), size);
                             read();
                           });
}

/// The end of the script counts, not that of its output, which a process that it has left behind
/// may hold open.
void HostDiscovery::on_ended() {
  const int status = kill_and_wait();
  ssize_t size = 0;
  while (text_.size() <= kMaxText &&
         (size = ::read(output_->native_handle(), buffer_.data(), buffer_.size())) > 0) {
    text_.append(buffer_.data(), static_cast<std::size_t>(size));
  }
  output_.reset();
  ended_.reset();
  timer_.expires_after(options_.pause);
  start_later();
  judge(status);
}

void HostDiscovery::judge(int status) {
  const std::string script = fmt::format("--host-discovery-script {}", in_quotes(options_.command));
  if (WIFSIGNALED(status)) {
    return handlers_.on_failure(
        fmt::format("{} was killed by {}", script, signal_name(WTERMSIG(status))));
  }
  if (WEXITSTATUS(status) != 0) {
    return handlers_.on_failure(fmt::format("{} exited {}", script, WEXITSTATUS(status)));
  }
  if (text_.size() > kMaxText) {
    return handlers_.on_failure(fmt::format("{} printed more than {} bytes", script, kMaxText));
  }
  std::vector<HostSpec> hosts;
  try {
    hosts = parse_discovered_hosts(text_, options_.slots);
  } catch (const LaunchError& error) {
    return handlers_.on_failure(fmt::format("{} printed: {}", script, error.what()));
  }
  handlers_.on_hosts(std::move(hosts));
}

int HostDiscovery::kill_and_wait() {
  ::kill(-pid_, SIGKILL);  // has no effect on a process that has ended and was not waited for
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

}  // namespace hvd::launcher
