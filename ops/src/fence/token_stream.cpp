#include "fence/token_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "transport/failure.hpp"

namespace hvd::detail {
namespace {

/// A lack of memory passes, and is not the end of the peer.
[[nodiscard]] bool try_again() noexcept {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS ||
         errno == ENOMEM;
}

}  // namespace

TokenStream::~TokenStream() {
  if (!fd_) return;
  // Closing a socket with unread bytes resets the connection, and the peer may lose what was sent.
  // So the unread tokens are read first.
  ::shutdown(fd_.get(), SHUT_WR);
  while (::recv(fd_.get(), received_.data(), received_.size(), MSG_DONTWAIT) > 0) {
  }
}

void TokenStream::post(const Token& token) {
  const TokenBytes bytes = encode(token);
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
}

bool TokenStream::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent =
        ::send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && try_again()) return false;
    if (sent < 0) {
      unsent_.clear();
    } else {
      unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
    }
  }
  return true;
}

const std::optional<Token>& TokenStream::peek() {
  if (next_) return next_;
  if (end_ - begin_ < kTokenBytes && !fill()) return next_;
  const std::span<const std::byte, kTokenBytes> bytes(received_.data() + begin_, kTokenBytes);
  next_ = decode_token(bytes, size_);
  if (!next_) throw peer_violation(peer_, "sent something that is no token");
  begin_ += kTokenBytes;
  return next_;
}

/// Moves the received bytes that are left to the front and receives once, without blocking. Returns
/// whether there is a whole token now.
bool TokenStream::fill() noexcept {
  std::memmove(received_.data(), received_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const ssize_t got =
      ::recv(fd_.get(), received_.data() + end_, received_.size() - end_, MSG_DONTWAIT);
  if (got > 0) end_ += static_cast<std::size_t>(got);
  ended_ = got == 0 || (got < 0 && !try_again());
  return end_ >= kTokenBytes;
}

}  // namespace hvd::detail
