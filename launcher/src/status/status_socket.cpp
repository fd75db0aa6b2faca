#include "status/status_socket.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/poll.hpp>
#include <hvd/core/types.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

using boost::asio::local::stream_protocol;
using boost::system::error_code;

constexpr std::chrono::seconds kClientDeadline{3};
constexpr std::chrono::milliseconds kAnswerDeadline{5'000};
/// The time after which a process without a free descriptor tries again to accept a connection.
constexpr std::chrono::milliseconds kAcceptAgain{500};
constexpr std::size_t kMaxAnswer = std::size_t{16} << 20;
/// Returns what precedes the job's id in the socket's name; a zero byte before it makes it
/// abstract.
std::string name_prefix(unsigned user) { return fmt::format("hvd-status-{}-", user); }

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::getuid();
}

/// The connection of one shell. Its pending operations keep it alive.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(boost::asio::io_context& io, stream_protocol::socket socket)
      : socket_(std::move(socket)), deadline_(io) {}

  void start(std::function<void(Client*)> on_end) {
    on_end_ = std::move(on_end);
    deadline_.expires_after(kClientDeadline);
    deadline_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->close();
    });
  }

  void answer(std::string text) {
    text_ = std::move(text);
    boost::asio::async_write(
        socket_, boost::asio::buffer(text_),
        [self = shared_from_this()](error_code, std::size_t) { self->close(); });
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    deadline_.cancel();
    if (on_end_) std::exchange(on_end_, nullptr)(this);
  }

 private:
  stream_protocol::socket socket_;
  boost::asio::steady_timer deadline_;
  std::string text_;
  std::function<void(Client*)> on_end_;
};

}  // namespace

struct StatusServer::Impl : std::enable_shared_from_this<Impl> {
  Impl(boost::asio::io_context& loop, OnAsked asked)
      : io(loop), on_asked(std::move(asked)), acceptor(loop), retry(loop) {}

  bool listen(const std::string& job_id) {
    const std::string name =
        fmt::format("{}{}{}", std::string(1, '\0'), name_prefix(::getuid()), job_id);
    error_code error;
    acceptor.open(stream_protocol(), error);
    if (!error) close_on_exec(acceptor.native_handle());
    if (!error) acceptor.bind(stream_protocol::endpoint(name), error);
    if (!error) acceptor.listen(static_cast<int>(kMaxClients), error);
    return !error;
  }

  void accept() {
    if (accepting || clients.size() >= kMaxClients || !acceptor.is_open()) return;
    accepting = true;
    acceptor.async_accept([self = shared_from_this()](error_code error, auto socket) {
      self->accepting = false;
      if (error) return self->accept_later();
      close_on_exec(socket.native_handle());
      if (is_own_user(socket.native_handle())) self->serve(std::move(socket));
      self->accept();
    });
  }

  /// The process may be short of descriptors, which must not disturb the job.
  void accept_later() {
    if (!acceptor.is_open()) return;
    retry.expires_after(kAcceptAgain);
    retry.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->accept();
    });
  }

  void serve(stream_protocol::socket socket) {
    const auto client = std::make_shared<Client>(io, std::move(socket));
    clients.insert(client);
    client->start([this](Client* over) {
      clients.erase(over->shared_from_this());
      accept();
    });
    on_asked([weak = std::weak_ptr<Client>(client)](std::string text) {
      if (const auto waiting = weak.lock()) waiting->answer(std::move(text));
    });
  }

  void close() {
    error_code ignored;
    acceptor.close(ignored);
    retry.cancel();
    for (const auto& client : std::exchange(clients, {})) client->close();
  }

  boost::asio::io_context& io;
  OnAsked on_asked;
  stream_protocol::acceptor acceptor;
  boost::asio::steady_timer retry;
  std::set<std::shared_ptr<Client>> clients;
  bool accepting = false;
};

StatusServer::StatusServer(boost::asio::io_context& io, const std::string& job_id, OnAsked on_asked)
    : impl_(std::make_shared<Impl>(io, std::move(on_asked))) {
  if (impl_->listen(job_id)) impl_->accept();
}

StatusServer::~StatusServer() { impl_->close(); }

std::vector<std::string> parse_jobs(const std::string& sockets, unsigned user) {
  const std::string prefix = fmt::format(" @{}", name_prefix(user));
  std::set<std::string> jobs;  // a set, since connections are listed with their socket's name too
  std::istringstream lines(sockets);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find(prefix);
    if (at != std::string::npos) jobs.insert(line.substr(at + prefix.size()));
  }
  return {jobs.begin(), jobs.end()};
}

std::vector<std::string> jobs_with_status() {
  return parse_jobs(read_file("/proc/net/unix"), ::getuid());
}

namespace {

std::string the_only_job() {
  const auto jobs = jobs_with_status();
  if (jobs.empty()) {
    throw LaunchError(kExitHostUnreachable, "no job of yours runs here, beside its hvdrun");
  }
  if (jobs.size() > 1) {
    throw LaunchError(kExitUsage,
                      fmt::format("which job? hvdrun status {}", fmt::join(jobs, " | ")));
  }
  return jobs.front();
}

UniqueFd connect_to(const std::string& job_id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = name_prefix(::getuid()) + job_id;
  if (name.size() + 1 > sizeof address.sun_path) {
    throw LaunchError(kExitUsage, fmt::format("{} is no job", in_quotes(job_id)));
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    throw LaunchError(kExitHostUnreachable,
                      fmt::format("no hvdrun of yours here runs the job {}", in_quotes(job_id)));
  }
  return socket;
}

}  // namespace

std::string ask_status(const std::string& job_id) {
  const UniqueFd socket = connect_to(job_id.empty() ? the_only_job() : job_id);
  if (!is_own_user(socket.get())) {
    throw LaunchError(kExitUnauthenticated, "another user answers for this job");
  }
  const Deadline deadline = Clock::now() + kAnswerDeadline;
  std::string text;
  for (;;) {
    pollfd readable{.fd = socket.get(), .events = POLLIN, .revents = 0};
    const bool ready = poll_until({&readable, 1}, deadline);
    std::array<char, 65'536> part{};
    const ssize_t size = ready ? ::read(socket.get(), part.data(), part.size()) : -1;
    if (size == 0 && !text.empty()) return text;
    if (size <= 0 || text.size() > kMaxAnswer) {
      throw LaunchError(kExitHostUnreachable, "the job's hvdrun does not answer");
    }
    text.append(part.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace hvd::launcher
