#include "net/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

#include "net/crypto.hpp"

namespace hvd::net {
namespace {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] sockaddr* data() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
};

constexpr std::chrono::seconds kPerAddress{2};  // when a name has several
constexpr std::size_t kMaxAddresses = 8;

Endpoint unix_endpoint(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) {
    throw Error(Errc::invalid_argument, fmt::format("the socket name {} is too long", name));
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  const bool abstract = name.starts_with('@');
  if (abstract) address.sun_path[0] = '\0';
  Endpoint endpoint;
  std::memcpy(&endpoint.storage, &address, sizeof(address));
  // The length of an abstract name is part of the name.
  endpoint.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  return endpoint;
}

std::vector<Endpoint> tcp_endpoints(const Address& address, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  // The system's resolver looks the name up, with timeouts of its own (resolv.conf).
  const int failed =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (failed != 0) {
    throw Unreachable(fmt::format("cannot resolve '{}': {}", address.host, ::gai_strerror(failed)),
                      false);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* i = list; i != nullptr && endpoints.size() < kMaxAddresses; i = i->ai_next) {
    Endpoint& endpoint = endpoints.emplace_back();
    std::memcpy(&endpoint.storage, i->ai_addr, i->ai_addrlen);
    endpoint.size = i->ai_addrlen;
  }
  return endpoints;
}

UniqueFd stream_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    throw Error(Errc::resource, fmt::format("cannot create a socket: {}", describe_errno(errno)));
  }
  return fd;
}

std::string fresh_abstract_name() {
  std::array<std::byte, 16> bytes{};
  fill_random(bytes);
  return fmt::format("@hvd-{:02x}", fmt::join(bytes, ""));
}

std::uint16_t bound_port(int fd) {
  Endpoint endpoint;
  endpoint.size = sizeof(endpoint.storage);
  if (::getsockname(fd, endpoint.data(), &endpoint.size) != 0) return 0;
  // The port has the same offset for both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&endpoint.storage)->sin_port);
}

// On loopback, a connect to a free ephemeral port can connect to itself (TCP's simultaneous open).
bool connected_to_itself(int fd) {
  Endpoint own;
  Endpoint peer;
  own.size = peer.size = sizeof(own.storage);
  return ::getsockname(fd, own.data(), &own.size) == 0 &&
         ::getpeername(fd, peer.data(), &peer.size) == 0 && own.data()->sa_family != AF_UNIX &&
         own.size == peer.size && std::memcmp(&own.storage, &peer.storage, own.size) == 0;
}

[[noreturn]] void throw_connect_error(int error) {
  const bool ours = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
  if (ours) throw Error(Errc::resource, "cannot connect: " + describe_errno(error));
  throw Unreachable(describe_errno(error), error == ECONNREFUSED || error == ENOENT);
}

UniqueFd connect_endpoint(const Endpoint& endpoint, Deadline deadline, const Interrupt& interrupt) {
  UniqueFd fd = stream_socket(endpoint.data()->sa_family);
  if (::connect(fd.get(), endpoint.data(), endpoint.size) != 0) {
    // EAGAIN means that a Unix listener's queue is full. No descriptor tells when it has room
    // again.
    if (errno != EINPROGRESS && errno != EINTR) throw_connect_error(errno);
    if (!wait_ready(fd.get(), Ready::write, deadline, interrupt)) {
      throw Unreachable("no answer to the connection request", false);
    }
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) throw_connect_error(error);
  }
  if (connected_to_itself(fd.get())) throw_connect_error(ECONNREFUSED);
  if (!peer_is_same_user(fd.get())) {
    throw Error(Errc::unauthenticated, "the socket belongs to another user");
  }
  tune_stream(fd.get());
  return fd;
}

}  // namespace

Listener::Listener(const Address& wanted) : address_(wanted) {
  std::vector<Endpoint> endpoints;
  if (wanted.kind == Address::Kind::unix_socket) {
    if (address_.host == "@") address_.host = fresh_abstract_name();
    endpoints.push_back(unix_endpoint(address_.host));
  } else {
    try {
      endpoints = tcp_endpoints(wanted, true);
    } catch (const Unreachable& error) {
      throw Error(Errc::resource, fmt::format("cannot listen: {}", error.what()));
    }
  }
  const Endpoint& endpoint = endpoints.front();
  UniqueFd fd = stream_socket(endpoint.data()->sa_family);
  const int on = 1;
  if (wanted.kind == Address::Kind::tcp && wanted.port != 0) {
    // A given port can be used at once, also when streams have just ended there.
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (::bind(fd.get(), endpoint.data(), endpoint.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    throw Error(Errc::resource, fmt::format("cannot listen on {}: {}", address_.to_string(),
                                            describe_errno(errno)));
  }
  if (wanted.kind == Address::Kind::tcp) address_.port = bound_port(fd.get());
  fd_ = std::move(fd);
}

Listener::~Listener() {
  const bool has_path =
      address_.kind == Address::Kind::unix_socket && address_.host.starts_with('/');
  if (fd_ && has_path) ::unlink(address_.host.c_str());
}

UniqueFd connect_to(const Address& address, Deadline deadline, const Interrupt& interrupt) {
  if (address.kind == Address::Kind::unix_socket) {
    return connect_endpoint(unix_endpoint(address.host), deadline, interrupt);
  }
  const std::vector<Endpoint> endpoints = tcp_endpoints(address, false);
  for (std::size_t i = 0; i + 1 < endpoints.size(); ++i) {
    try {
      return connect_endpoint(endpoints[i], std::min(deadline, Clock::now() + kPerAddress),
                              interrupt);
    } catch (const Unreachable&) {
      // The next address of the same name may answer.
    }
  }
  return connect_endpoint(endpoints.back(), deadline, interrupt);
}

bool peer_is_same_user(int fd) noexcept {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  if (own.ss_family != AF_UNIX) return true;
  ucred peer{};
  socklen_t peer_size = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 &&
         peer.uid == ::geteuid();
}

void tune_stream(int fd) noexcept {
  const auto set = [fd](int level, int option, int value) {
    // This fails on a Unix socket, to which the options do not apply.
    [[maybe_unused]] const int ignored = ::setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // While few packets are unacknowledged, the system sends them again at a constant interval the
  // first few times (0.2 s on a fast network), and doubles the interval only after that. So the
  // stream recovers soon after a short silence of the link.
  set(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  // Keepalive stays off, because heartbeats decide how long a host may be silent.
}

std::string describe_errno(int error) {
  switch (error) {
    case ECONNRESET:
    case EPIPE:
      return "connection reset";
    case ECONNREFUSED:
      return "connection refused";
    case ETIMEDOUT:
      return "connection timed out";
    default:
      return std::system_category().message(error);
  }
}

}  // namespace hvd::net
