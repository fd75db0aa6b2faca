#include "plan/machine.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/network_interfaces.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "plan/cpus.hpp"
#include "plan/devices.hpp"
#include "plan/this_host.hpp"
#include "supervise/start_process.hpp"

namespace hvd::launcher {
namespace {

MachineFacts::Tool find_tool(const std::string& name, const Variables& own) {
  try {
    return {name, find_program(name, value_of(own, "PATH"))};
  } catch (const LaunchError&) {
    return {name, ""};
  }
}

std::string numeric(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  if (bytes == nullptr) return "";
  return ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr ? ""
                                                                                    : text.data();
}

struct FreeAddresses {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

std::vector<MachineFacts::Interface> list_interfaces() {
  std::vector<MachineFacts::Interface> interfaces;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, FreeAddresses> owner(list);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0U ||
        (entry->ifa_flags & IFF_LOOPBACK) != 0U) {
      continue;
    }
    std::string address = numeric(*entry->ifa_addr);
    if (address.empty()) continue;
    const std::string name = entry->ifa_name;
    auto known = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const auto& one) { return one.name == name; });
    if (known == interfaces.end()) {
      interfaces.push_back({name, {}});
      known = interfaces.end() - 1;
    }
    known->addresses.push_back(std::move(address));
  }
  return interfaces;
}

}  // namespace

MachineFacts look_at_machine(const Variables& own) {
  MachineFacts facts;
  facts.host = own_host_name();
  facts.cores = usable_cores();
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    facts.memory = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    facts.shared_memory = std::uint64_t{shm.f_blocks} * shm.f_frsize;
  }
  facts.gpus = count_gpus("/dev");
  for (const char* name : {"ssh", "srun"}) {
    facts.launchers.push_back(find_tool(name, own));
  }
  facts.interfaces = list_interfaces();
  try {
    facts.chosen = reachable_address(value_of(own, "HVD_NETWORK_INTERFACES")).interface;
  } catch (const Error&) {
    facts.chosen.reset();
  }
  return facts;
}

std::string machine_table(const MachineFacts& facts) {
  std::string table = fmt::format("\nThis machine, {}:\n", facts.host);
  table += fmt::format("    {} usable core{}", facts.cores, facts.cores == 1 ? "" : "s");
  if (facts.memory > 0) table += fmt::format(", {} of memory", in_units(facts.memory));
  table += facts.shared_memory > 0
               ? fmt::format(", /dev/shm of {} (NCCL and MPI use it, hvd does not)\n",
                             in_units(facts.shared_memory))
               : ", no /dev/shm (NCCL and MPI use it, hvd does not)\n";
  table += fmt::format("    [{}] NVIDIA GPU{}\n", facts.gpus > 0 ? 'X' : ' ',
                       facts.gpus > 0 ? fmt::format("s: {}", facts.gpus) : "");
  table += "\nLaunchers found:\n    [X] local\n";
  for (const MachineFacts::Tool& tool : facts.launchers) {
    table += fmt::format("    [{}] {}{}\n", tool.path.empty() ? ' ' : 'X', tool.name,
                         tool.path.empty() ? "" : fmt::format(" {}", tool.path));
  }
  table += "\nNetwork interfaces (--network-interfaces):\n";
  for (const MachineFacts::Interface& one : facts.interfaces) {
    table += fmt::format("    [{}] {} {}\n", one.name == facts.chosen ? 'X' : ' ', one.name,
                         fmt::join(one.addresses, ", "));
  }
  if (facts.interfaces.empty()) table += "    none but the loopback: jobs stay on this machine\n";
  return table;
}

}  // namespace hvd::launcher
