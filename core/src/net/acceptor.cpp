#include "net/acceptor.hpp"

#include <cerrno>
#include <exception>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/authenticated_listener.hpp>
#include <hvd/core/log.hpp>

#include "net/dial.hpp"
#include "net/handshake.hpp"

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

Acceptor::Acceptor(EventLoop& loop, const Identity& self, OnStream on_stream,
                   OnShortage on_shortage)
    : loop_(loop),
      self_(self),
      on_stream_(std::move(on_stream)),
      on_shortage_(std::move(on_shortage)),
      rest_timer_(loop.io()) {}

void Acceptor::listen(Listener listener) {
  ports_.push_back(std::make_shared<Port>(loop_.io(), std::move(listener)));
  wait_all();
}

void Acceptor::close() noexcept {
  closed_ = true;
  ports_.clear();
  rest_timer_.cancel();
  for (const auto& handshake : unproven_) handshake->close();
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
  // The pointer is weak, so that an open wait does not keep a listener alive that close() has
  // dropped.
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
  try {
    while (!closed_ && !resting_ && unproven_.size() < kMaxUnproven &&
           accept_one(port->listener.fd())) {
    }
  } catch (const std::exception& error) {  // memory is short, or watches of epoll
    rest(error.what());
  }
  wait_all();
}

bool Acceptor::accept_one(int listener) {
  UniqueFd stream(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!stream) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      rest(describe_errno(errno));
      return false;
    }
    // Any other error except "no connection" concerns that one connection only (accept(2)).
    return errno != EAGAIN && errno != EWOULDBLOCK;
  }
  if (!peer_is_same_user(stream.get())) {
    log(LogLevel::info, self_.rank, "dropped a connection of another user");
    return true;
  }
  tune_stream(stream.get());
  auto handshake = std::make_shared<ServerHandshake>(loop_.io(), std::move(stream), self_,
                                                     static_cast<ServerHandshake::Owner&>(*this),
                                                     kHandshakeLimit);
  unproven_.insert(handshake);
  handshake->start();
  short_since_.reset();
  return true;
}

// Pauses accepting while descriptors or memory are short. The connection stays in the kernel's
// queue, and without a pause the loop would try to accept it again at once.
void Acceptor::rest(const std::string& why) {
  log(LogLevel::warn, self_.rank, fmt::format("cannot accept a connection: {}", why));
  const Clock::time_point now = Clock::now();
  // The connection of an earlier shortage may have gone without having been accepted.
  const bool goes_on = short_since_ && now - last_shortage_ < kShortageLimit;
  last_shortage_ = now;
  if (!goes_on) short_since_ = now;
  if (now - *short_since_ >= kShortageLimit) {
    short_since_ = now;
    if (on_shortage_) on_shortage_(why);
  }
  resting_ = true;
  rest_timer_.expires_after(kRest);
  rest_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    self->resting_ = false;
    if (!error) self->wait_all();
  });
}

void Acceptor::on_proven(ServerHandshake& handshake, UniqueFd stream, const Hello& peer) {
  unproven_.erase(handshake.shared_from_this());
  on_stream_(std::move(stream), peer);
  wait_all();
}

void Acceptor::on_dropped(ServerHandshake& handshake, const std::string& why) {
  unproven_.erase(handshake.shared_from_this());
  log(LogLevel::info, self_.rank, fmt::format("dropped a connection: {}", why));
  wait_all();
}

}  // namespace hvd::net

namespace hvd {

struct AuthenticatedListener::Impl {
  EventLoop& loop;
  std::shared_ptr<net::Acceptor> acceptor;
};

AuthenticatedListener::AuthenticatedListener(EventLoop& loop, const std::string& address,
                                             const Identity& identity, OnStream on_stream)
    : impl_(std::make_unique<Impl>(Impl{loop, nullptr})) {
  net::Listener listener(Address::parse(address));
  impl_->acceptor = std::make_shared<net::Acceptor>(
      loop, identity, [on_stream = std::move(on_stream)](UniqueFd stream, const net::Hello&) {
        on_stream(std::move(stream));
      });
  loop.run_sync([&] { impl_->acceptor->listen(std::move(listener)); });
}

AuthenticatedListener::~AuthenticatedListener() {
  impl_->loop.run_sync([this] { impl_->acceptor->close(); });
}

UniqueFd connect_authenticated(const std::string& address, const Identity& identity,
                               std::string_view label, Deadline deadline) {
  net::DialOptions options;
  options.address = Address::parse(address);
  options.peer = net::kAnyRank;
  options.label = label;
  options.deadline = deadline;
  const net::Interrupt never;
  return net::dial(options, identity, never);
}

}  // namespace hvd
