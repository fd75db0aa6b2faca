#include <array>
#include <cerrno>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/peer_network.hpp>

#include "net/socket.hpp"

namespace hvd {

HostIdentity HostIdentity::of_this_process() {
  HostIdentity identity;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) identity.hostname = name.data();
  if (identity.hostname.empty()) identity.hostname = "localhost";

  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, identity.boot_id);
  struct stat status {};
  if (identity.boot_id.empty() || ::stat("/proc/self/ns/net", &status) != 0) {
    // Without them ranks of different hosts would take each other for neighbours.
    throw Error(Errc::resource, "/proc does not tell this machine's boot id and network namespace");
  }
  identity.network_namespace = status.st_ino;
  return identity;
}

}  // namespace hvd
