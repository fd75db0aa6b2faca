#include "supervise/rendezvous.hpp"

#include <random>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/network_interfaces.hpp>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

/// Binds `socket` to a free port of `address`, which has its address family, and returns the port.
std::uint16_t bind_to_free_port(int socket, const std::string& address) {
  sockaddr_storage any{};
  socklen_t size = sizeof any;
  auto* const generic = reinterpret_cast<sockaddr*>(&any);
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&any);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&any);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    any.ss_family = AF_INET;
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    any.ss_family = AF_INET6;
    size = sizeof *v6;
  }
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket, generic, size) != 0 || ::getsockname(socket, generic, &size) != 0) {
    refuse_system("cannot reserve a port");
  }
  return ntohs(any.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
}

std::string host_for(const Rendezvous::Options& options) {
  return options.several_machines ? reachable_address(options.interfaces).address : "127.0.0.1";
}

std::string store_address(const Rendezvous::Options& options, const std::string& host) {
  if (!options.several_machines) return "unix:@";
  return Address{Address::Kind::tcp, host, 0}.to_string();
}

Identity identity_of(const Rendezvous::Options& options) {
  return {.job_id = options.job_id, .epoch = options.epoch, .rank = -1, .secret = options.secret};
}

}  // namespace

std::string random_job_id() {
  std::random_device random;
  return fmt::format("hvd-{:08x}{:08x}", random(), random());
}

ReservedPort::ReservedPort(const std::string& address)
    : socket_(::socket(address.find(':') == std::string::npos ? AF_INET : AF_INET6,
                       SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (!socket_) refuse_system("cannot reserve a port");
  number_ = bind_to_free_port(socket_.get(), address);
}

Rendezvous::Rendezvous(const Options& options)
    : host_(host_for(options)),
      port_(host_),
      store_(loop_, store_address(options, host_), identity_of(options)) {}

}  // namespace hvd::launcher
