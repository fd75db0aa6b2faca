#include "net/frame_stream.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/delivery.hpp>

#include "net/socket.hpp"

namespace hvd::net {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kKeep = std::size_t{1} << 20;
constexpr int kChunksPerTurn = 16;  // then the loop handles its other sockets and timers

}  // namespace

FrameStream::FrameStream(EventLoop& loop, UniqueFd stream, const FrameRules& rules)
    : loop_(loop), stream_(loop.io()), rules_(rules) {
  stream_.assign(stream.get());
  static_cast<void>(stream.release());
}

void FrameStream::start(Listener& listener) {
  listener_ = &listener;
  wait_readable();
}

void FrameStream::send(std::span<const std::byte> payload) {
  Bytes frame = encode_frame(rules_.sends, payload);
  if (closed_ || ending_ || !write_error_.empty()) return;
  output_.push_back(std::move(frame));
  backlog_ += output_.back().size();
  if (!writing_) write();
}

bool FrameStream::delivered() {
  if (closed_ || ending_ || !write_error_.empty()) return true;
  if (backlog_ > 0) return false;
  return is_delivered(stream_.native_handle());
}

Clock::time_point FrameStream::host_answered() {
  tcp_info info{};
  socklen_t size = sizeof(info);
  // The option is refused for a Unix socket, whose other end is on this host.
  if (::getsockopt(stream_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return Clock::now();
  }
  return Clock::now() - std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

void FrameStream::end_later(const std::string& cause) {
  if (std::exchange(ending_, true)) return;
  loop_.post([self = shared_from_this(), cause] {
    if (!self->closed_) self->end(cause);
  });
}

void FrameStream::close() noexcept {
  if (closed_) return;
  write();
  closed_ = true;
  boost::system::error_code ignored;
  stream_.close(ignored);
}

void FrameStream::wait_readable() {
  stream_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (!error && !self->closed_) self->read();
                     });
}

void FrameStream::read() {
  std::array<std::byte, kChunk> chunk;
  for (int turn = 0; turn < kChunksPerTurn; ++turn) {
    const ssize_t n = ::recv(stream_.native_handle(), chunk.data(), kChunk, MSG_DONTWAIT);
    const int error = errno;
    if (n > 0) {
      deliver(std::span(chunk).first(static_cast<std::size_t>(n)));
      if (closed_ || ending_) return;
      if (static_cast<std::size_t>(n) < kChunk) break;
    } else if (n == 0) {
      const bool whole = input_.empty();
      end(!write_error_.empty() ? write_error_
          : whole               ? "connection closed"
                                : "connection closed in the middle of a message");
      return;
    } else if (error == EAGAIN || error == EWOULDBLOCK) {
      break;
    } else if (error != EINTR) {
      end(describe_errno(error));
      return;
    }
  }
  wait_readable();
}

void FrameStream::deliver(std::span<const std::byte> bytes) {
  std::span<const std::byte> rest;
  try {
    input_.insert(input_.end(), bytes.begin(), bytes.end());
    rest = input_;
    while (rest.size() >= kFrameHeaderSize) {
      const FrameHeader header =
          decode_frame_header(rest.first(kFrameHeaderSize), rules_.receives, rules_.limit);
      if (rest.size() - kFrameHeaderSize < header.length) break;
      listener_->on_frame(*this, rest.subspan(kFrameHeaderSize, header.length));
      if (closed_ || ending_) return;
      rest = rest.subspan(kFrameHeaderSize + header.length);
    }
  } catch (const std::exception& error) {
    if (!closed_) end(std::string("protocol violation: ") + error.what());
    return;
  }
  input_.erase(input_.begin(), input_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  if (input_.empty() && input_.capacity() > kKeep) input_.shrink_to_fit();
}

void FrameStream::write() {
  while (!closed_ && !output_.empty()) {
    const Bytes& frame = output_.front();
    const ssize_t n = ::send(stream_.native_handle(), frame.data() + written_,
                             frame.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      written_ += static_cast<std::size_t>(n);
      backlog_ -= static_cast<std::size_t>(n);
      if (written_ < frame.size()) continue;
      output_.pop_front();
      written_ = 0;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!writing_) wait_writable();
      return;
    } else if (errno != EINTR) {
      // Reading meets the end as well, after the peer's last messages, and reports it then.
      write_error_ = describe_errno(errno);
      output_.clear();
      backlog_ = 0;
    }
  }
}

void FrameStream::wait_writable() {
  writing_ = true;
  stream_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->writing_ = false;
                       if (error) return;
                       self->write();
                       const bool room = self->output_.empty() && !self->closed_;
                       if (room && self->listener_ != nullptr) self->listener_->on_room(*self);
                     });
}

void FrameStream::end(const std::string& cause) {
  Listener* const listener = listener_;
  closed_ = true;
  boost::system::error_code ignored;
  stream_.close(ignored);
  listener->on_end(*this, cause);
}

}  // namespace hvd::net
