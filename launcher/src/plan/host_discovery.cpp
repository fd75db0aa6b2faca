#include "plan/host_discovery.hpp"

#include <array>
#include <cerrno>
#include <csignal>
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

/// It does not wait for the script, which may hang in the kernel. Its zombie ends with hvdrun.
HostDiscovery::~HostDiscovery() { kill_group(); }

void HostDiscovery::stop() {
  stopped_ = true;
  timer_.cancel();
  kill_group();
}

void HostDiscovery::start_later() {
  timer_.async_wait([this](error_code error) {
    if (!error && !stopped_) start();
  });
}

void HostDiscovery::start() {
  // What the last script left behind was killed, and this process has adopted it.
  while (last_group_ > 0 && ::waitpid(-last_group_, nullptr, WNOHANG) > 0) {
  }
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
    kill_group();
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    timer_.expires_after(options_.pause);
    start_later();
    handlers_.on_failure(error.what());
    return;
  }
  watch();
}

void HostDiscovery::watch() {
  text_.clear();
  late_ = false;
  wait_for_output();
  ended_->async_wait(descriptor_base::wait_read, [this](error_code error) {
    if (!error) on_ended();
  });
  timer_.expires_after(options_.limit);
  timer_.async_wait([this](error_code error) {
    if (error || pid_ < 0) return;
    late_ = true;
    kill_group();
  });
}

void HostDiscovery::wait_for_output() {
  output_->async_wait(descriptor_base::wait_read, [this](error_code error) {
    if (!error && output_ && take_output()) wait_for_output();
  });
}

/// Takes what the script has printed. Returns whether it may print more.
bool HostDiscovery::take_output() {
  std::array<char, 4096> buffer;
  while (text_.size() <= kMaxText) {
    const ssize_t size = ::read(output_->native_handle(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    if (size == 0) return false;
    text_.append(buffer.data(), static_cast<std::size_t>(size));
  }
  kill_group();
  return false;
}

/// The end of the script counts, not that of its output, which a process that it has left behind
/// may hold open.
void HostDiscovery::on_ended() {
  kill_group();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  last_group_ = std::exchange(pid_, -1);
  (void)take_output();
  output_.reset();
  ended_.reset();
  if (stopped_) return;
  timer_.expires_after(options_.pause);
  start_later();
  judge(status);
}

void HostDiscovery::judge(int status) {
  const std::string script = fmt::format("--host-discovery-script {}", in_quotes(options_.command));
  if (late_) {
    return handlers_.on_failure(
        fmt::format("{} did not end within {:.1f} s", script, in_seconds(options_.limit)));
  }
  if (text_.size() > kMaxText) {
    return handlers_.on_failure(fmt::format("{} printed more than {} bytes", script, kMaxText));
  }
  if (WIFSIGNALED(status)) {
    return handlers_.on_failure(
        fmt::format("{} was killed by {}", script, signal_name(WTERMSIG(status))));
  }
  if (WEXITSTATUS(status) != 0) {
    return handlers_.on_failure(fmt::format("{} exited {}", script, WEXITSTATUS(status)));
  }
  std::vector<HostSpec> hosts;
  try {
    hosts = parse_discovered_hosts(text_, options_.slots);
  } catch (const LaunchError& error) {
    return handlers_.on_failure(fmt::format("{} printed: {}", script, error.what()));
  }
  handlers_.on_hosts(std::move(hosts));
}

/// Kills the script and all that is left of its process group. May be called until the script is
/// waited for.
void HostDiscovery::kill_group() const {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

}  // namespace hvd::launcher
