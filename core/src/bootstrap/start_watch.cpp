#include "bootstrap/start_watch.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>

#include "net/socket.hpp"

namespace hvd::detail {

using boost::asio::posix::descriptor_base;
using boost::asio::posix::stream_descriptor;

StartWatch::StartWatch(EventLoop& loop, int fd, std::function<void()> on_readable) : loop_(loop) {
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!own) {
    throw Error(Errc::resource,
                fmt::format("cannot watch descriptor {}: {}", fd, net::describe_errno(errno)));
  }
  duplicate_ = std::make_shared<stream_descriptor>(loop.io(), own.get());
  static_cast<void>(own.release());
  loop.run_sync([&] {
    duplicate_->async_wait(descriptor_base::wait_read,
                           [watched = duplicate_,
                            call = std::move(on_readable)](const boost::system::error_code& error) {
                             if (!error && watched->is_open()) call();
                           });
  });
}

StartWatch::~StartWatch() {
  loop_.run_sync([this] {
    boost::system::error_code ignored;
    duplicate_->close(ignored);
  });
}

}  // namespace hvd::detail
