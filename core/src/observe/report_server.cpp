#include "observe/report_server.hpp"

#include <cerrno>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <fcntl.h>
#include <sys/socket.h>

#include <hvd/core/internal/fd.hpp>

#include "base/launcher_socket.hpp"

namespace hvd::observe {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

}  // namespace

struct ReportServer::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& loop, UniqueFd fd, std::function<RankReport()> source)
      : socket(loop.io(), fd.get()), report(std::move(source)) {
    static_cast<void>(fd.release());
  }

  void listen() {
    socket.async_wait(Descriptor::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        if (!error && self->report) self->answer();
                      });
  }

  void answer() {
    char question = 0;
    const ssize_t got = ::recv(socket.native_handle(), &question, 1, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;  // nobody asks any more
    listen();  // before the report, which may throw
    if (got > 0) send(encode(report()));
  }

  void tell(const RankNote& note) { send(encode(note)); }

  void send(const Bytes& bytes) {
    (void)::send(socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void close() noexcept {
    report = nullptr;
    boost::system::error_code ignored;
    socket.close(ignored);
  }

  Descriptor socket;
  std::function<RankReport()> report;
  bool ended = false;
};

std::unique_ptr<ReportServer> ReportServer::on(EventLoop& loop, int fd,
                                               std::function<RankReport()> report) {
  if (!detail::is_launcher_socket(fd)) return nullptr;
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!own) return nullptr;
  auto impl = std::make_shared<Impl>(loop, std::move(own), std::move(report));
  loop.run_sync([&impl] { impl->listen(); });
  return std::unique_ptr<ReportServer>(new ReportServer(loop, std::move(impl)));
}

ReportServer::ReportServer(EventLoop& loop, std::shared_ptr<Impl> impl)
    : loop_(loop), impl_(std::move(impl)) {}

void ReportServer::joined() {
  loop_.run_sync([this] { impl_->tell({.kind = RankNote::Kind::joined}); });
}

void ReportServer::stops() {
  loop_.run_sync([this] { impl_->tell({.kind = RankNote::Kind::stops}); });
}

void ReportServer::ended(int blames, bool blamed_left) {
  loop_.run_sync([&] {
    if (std::exchange(impl_->ended, true)) return;
    impl_->tell({RankNote::Kind::ended, blames, blamed_left});
  });
}

ReportServer::~ReportServer() {
  loop_.run_sync([this] { impl_->close(); });
}

}  // namespace hvd::observe
