#include "net/room_watch.hpp"

#include <utility>

namespace hvd::net {

RoomWatch::RoomWatch(EventLoop& loop, UniqueFd socket) : socket_(loop.io()) {
  socket_.assign(socket.get());
  static_cast<void>(socket.release());
}

void RoomWatch::wait(std::function<void()> then) {
  if (closed_) return;
  socket_.async_wait(
      boost::asio::posix::stream_descriptor::wait_write,
      [self = shared_from_this(), then = std::move(then)](const boost::system::error_code& error) {
        if (!error && !self->closed_) then();
      });
}

void RoomWatch::close() noexcept {
  closed_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace hvd::net
