#include "net/own_address.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>

#include "net/interfaces.hpp"

namespace hvd::net {
namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace

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
