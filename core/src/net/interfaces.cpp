#include "net/interfaces.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/network_interfaces.hpp>
#include <hvd/core/internal/text.hpp>

#include "net/socket.hpp"

namespace hvd::net {
namespace {

constexpr std::array<std::string_view, 6> kBridges{"docker", "br-", "veth", "virbr", "cni", "lxc"};

struct Numeric {
  int family = AF_INET;
  std::array<std::uint8_t, 16> bytes{};
  int bits = 32;
};

std::optional<Numeric> parse_numeric(const std::string& text) {
  Numeric numeric;
  if (::inet_pton(AF_INET, text.c_str(), numeric.bytes.data()) == 1) return numeric;
  numeric.family = AF_INET6;
  numeric.bits = 128;
  if (::inet_pton(AF_INET6, text.c_str(), numeric.bytes.data()) == 1) return numeric;
  return std::nullopt;
}

bool same_prefix(const Numeric& a, const Numeric& b, int bits) {
  const auto whole = static_cast<std::size_t>(bits / 8);
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + bits / 8, b.bytes.begin())) return false;
  const int rest = bits % 8;
  if (rest == 0) return true;
  const int mask = (0xff << (8 - rest)) & 0xff;
  return (a.bytes[whole] & mask) == (b.bytes[whole] & mask);
}

bool is_bridge(const std::string& interface) {
  return std::any_of(kBridges.begin(), kBridges.end(), [&](std::string_view prefix) {
    return std::string_view(interface).starts_with(prefix);
  });
}

std::string numeric_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw =
      address->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return ::inet_ntop(address->sa_family, raw, text.data(), text.size()) != nullptr ? text.data()
                                                                                   : "";
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries = detail::split_at(list, ',');
  for (std::string_view& entry : entries) {
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
  }
  std::erase(entries, "");
  return entries;
}

[[noreturn]] void nothing_fits(std::span<const InterfaceAddress> addresses, std::string_view why) {
  std::vector<std::string> names;
  for (const InterfaceAddress& one : addresses) {
    names.push_back(fmt::format("{} {}", one.interface, one.address));
  }
  throw Error(Errc::invalid_argument,
              fmt::format("{}; this machine has: {}", why, fmt::join(names, ", ")));
}

}  // namespace

std::vector<InterfaceAddress> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    throw Error(Errc::resource, "cannot list the network interfaces: " + describe_errno(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const bool usable = i->ifa_addr != nullptr && (i->ifa_flags & IFF_UP) != 0 &&
                        (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6) &&
                        !is_link_local(i->ifa_addr);
    if (!usable) continue;
    addresses.push_back(
        {i->ifa_name, numeric_address(i->ifa_addr), (i->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return addresses;
}

bool in_block(const std::string& address, std::string_view cidr) {
  const std::size_t slash = cidr.find('/');
  const std::optional<Numeric> base = parse_numeric(std::string(cidr.substr(0, slash)));
  const int bits = slash == std::string_view::npos
                       ? -1
                       : detail::to_number<int>(cidr.substr(slash + 1)).value_or(-1);
  if (!base || bits < 0 || bits > base->bits) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is not a block like 10.0.0.0/8", cidr));
  }
  const std::optional<Numeric> numeric = parse_numeric(address);
  return numeric && numeric->family == base->family && same_prefix(*numeric, *base, bits);
}

std::string choose_address(std::span<const InterfaceAddress> addresses, std::string_view wanted,
                           bool one_host) {
  const std::vector<std::string_view> entries = entries_of(wanted);
  for (const std::string_view entry : entries) {
    const bool block = entry.find('/') != std::string_view::npos;
    for (const InterfaceAddress& one : addresses) {
      if (block ? in_block(one.address, entry) : one.interface == entry) return one.address;
    }
  }
  if (!entries.empty()) {
    nothing_fits(addresses, fmt::format("no network interface matches '{}'", wanted));
  }
  if (one_host) {
    for (const InterfaceAddress& one : addresses) {
      if (one.loopback && one.address.find(':') == std::string::npos) return one.address;
    }
    return "127.0.0.1";
  }
  for (const bool v6 : {false, true}) {
    for (const InterfaceAddress& one : addresses) {
      const bool is_v6 = one.address.find(':') != std::string::npos;
      if (is_v6 == v6 && !one.loopback && !is_bridge(one.interface)) return one.address;
    }
  }
  nothing_fits(addresses, "no network interface leads to other machines");
}

std::string listen_address(std::string_view wanted, bool one_host) {
  return Address{Address::Kind::tcp, choose_address(list_interfaces(), wanted, one_host), 0}
      .to_string();
}

std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(i->ai_addr, i->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

bool is_this_machine(const std::string& host) {
  const std::vector<InterfaceAddress> own = list_interfaces();
  const std::vector<std::string> addresses = resolve(host);
  return std::any_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
    return is_loopback(address) || std::any_of(own.begin(), own.end(), [&](const auto& one) {
             return one.address == address;
           });
  });
}

std::optional<std::string> own_address_of(const std::string& host) {
  const std::vector<InterfaceAddress> own = list_interfaces();
  for (const std::string& address : resolve(host)) {
    if (address == host && is_loopback(address)) return address;
    const bool here = std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& one) {
      return !one.loopback && one.address == address;
    });
    if (here) return address;
  }
  return std::nullopt;
}

}  // namespace hvd::net

namespace hvd {

ReachableAddress reachable_address(std::string_view wanted) {
  const auto addresses = net::list_interfaces();
  std::string chosen = net::choose_address(addresses, wanted, /*one_host=*/false);
  const auto owner = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const auto& one) { return one.address == chosen; });
  return {.interface = owner == addresses.end() ? "" : owner->interface,
          .address = std::move(chosen)};
}

}  // namespace hvd
