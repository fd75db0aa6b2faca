#include "net/acceptor.hpp"

#include <cerrno>

#include <boost/asio/io_context.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/log.hpp>

namespace hvd::net {
namespace {

constexpr std::chrono::milliseconds kRest{50};

int duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw Error(Errc::resource, "cannot duplicate a listening socket");
  return copy;
}

}  // namespace

Acceptor::Port::Port(boost::asio::io_context& io, Listener own)
    : listener(std::move(own)), wait(io, duplicate(listener.fd())) {}

Acceptor::Acceptor(EventLoop& loop, const Identity& self, OnStream on_stream)
    : loop_(loop), self_(self), on_stream_(std::move(on_stream)), rest_timer_(loop.io()) {}

void Acceptor::listen(Listener listener) {
  ports_.push_back(std::make_shared<Port>(loop_.io(), std::move(listener)));
  wait_all();
}

void Acceptor::close() noexcept {
  closed_ = true;
  ports_.clear();
  rest_timer_.cancel();
  for (const std::shared_ptr<Greeting>& greeting : unproven_) greeting->close();
  unproven_.clear();
}

void Acceptor::wait_all() {
  if (closed_ || resting_) return;
  for (const std::shared_ptr<Port>& port : ports_) {
    if (!port->waiting && unproven_.size() < kMaxUnproven) wait(port);
  }
}

void Acceptor::wait(const std::shared_ptr<Port>& port) {
  port->waiting = true;
  // Weak: an open wait must not keep a listener alive that close() has dropped.
  port->wait.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [self = shared_from_this(),
                         weak = std::weak_ptr<Port>(port)](const boost::system::error_code& error) {
                          const std::shared_ptr<Port> ready = weak.lock();
                          if (error || !ready || self->closed_) return;
                          ready->waiting = false;
                          self->accept(ready);
                        });
}

void Acceptor::accept(const std::shared_ptr<Port>& port) {
  while (!closed_ && !resting_ && unproven_.size() < kMaxUnproven &&
         accept_one(port->listener.fd())) {
  }
  wait_all();
}

bool Acceptor::accept_one(int listener) {
  UniqueFd stream(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!stream) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log(LogLevel::warn, self_.rank,
          fmt::format("cannot accept a connection: {}", describe_errno(errno)));
      rest();
      return false;
    }
    // Anything else but "none there" is the fate of that one connection (accept(2)).
    return errno != EAGAIN && errno != EWOULDBLOCK;
  }
  if (!peer_is_same_user(stream.get())) {
    log(LogLevel::info, self_.rank, "dropped a connection of another user");
    return true;
  }
  tune_stream(stream.get());
  auto greeting = std::make_shared<Greeting>(loop_.io(), std::move(stream), self_,
                                             static_cast<Greeting::Owner&>(*this), kHandshakeLimit);
  unproven_.insert(greeting);
  greeting->start();
  return true;
}

// The connection stays in the queue: without a rest the loop would spin on it.
void Acceptor::rest() {
  resting_ = true;
  rest_timer_.expires_after(kRest);
  rest_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    self->resting_ = false;
    if (!error) self->wait_all();
  });
}

void Acceptor::on_greeted(Greeting& greeting, UniqueFd stream, const Hello& peer) {
  unproven_.erase(greeting.shared_from_this());
  on_stream_(std::move(stream), peer);
  wait_all();
}

void Acceptor::on_dropped(Greeting& greeting, const std::string& why) {
  unproven_.erase(greeting.shared_from_this());
  log(LogLevel::info, self_.rank, fmt::format("dropped a connection: {}", why));
  wait_all();
}

}  // namespace hvd::net
