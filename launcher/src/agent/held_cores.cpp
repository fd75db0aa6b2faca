#include "agent/held_cores.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace hvd::launcher {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;

  explicit Address(int core) {
    const std::string text = fmt::format("hvd-core-{}", core);
    name.sun_family = AF_UNIX;
    // The first byte of an abstract name is 0.
    std::copy(text.begin(), text.end(), name.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

UniqueFd make_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

}  // namespace

bool HeldCores::is_held(int core) {
  const UniqueFd probe = make_socket();
  const Address address(core);
  return ::connect(probe.get(), address.get(), address.size) == 0 || errno != ECONNREFUSED;
}

bool HeldCores::hold(const std::vector<int>& cores) {
  std::vector<UniqueFd> sockets;
  for (const int core : cores) {
    const Address address(core);
    sockets.push_back(make_socket());
    if (::bind(sockets.back().get(), address.get(), address.size) != 0) return false;
  }
  sockets_ = std::move(sockets);
  return true;
}

}  // namespace hvd::launcher
