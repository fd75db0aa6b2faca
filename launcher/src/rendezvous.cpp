#include "rendezvous.hpp"

#include <cerrno>
#include <random>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

std::string random_id() {
  std::random_device random;
  return fmt::format("hvd-{:08x}{:08x}", random(), random());
}

[[noreturn]] void refuse(const char* what) {
  throw LaunchError(kExitResource, fmt::format("{}: {}", what, error_text(errno)));
}

}  // namespace

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket_.get(), generic, size) != 0 ||
      ::getsockname(socket_.get(), generic, &size) != 0) {
    refuse("cannot reserve a port");
  }
  number_ = ntohs(address.sin_port);
}

JobRendezvous::JobRendezvous()
    : id_(random_id()),
      store_(loop_, "unix:@", Identity{.job_id = id_, .epoch = 0, .rank = -1, .secret = secret_}) {}

JobIdentity JobRendezvous::identity() const {
  return {.id = id_,
          .restart_count = 0,
          .store = store_.address(),
          .master_host = "127.0.0.1",
          .master_port = port_.number()};
}

}  // namespace hvd::launcher
