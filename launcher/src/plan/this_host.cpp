#include "plan/this_host.hpp"

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/exit_codes.hpp"
#include "plan/hosts.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {
namespace {

struct FreeAddresses {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

/// Converts an IPv4 or IPv6 address to network order, so that different spellings compare equal.
std::optional<std::string> parse_address(const std::string& text) {
  std::array<char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) return std::string(bytes.data(), 4);
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) {
    return std::string(bytes.data(), bytes.size());
  }
  return std::nullopt;
}

std::optional<std::string> bytes_of(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return std::string(reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    return std::string(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof v6.sin6_addr);
  }
  return std::nullopt;
}

bool is_own_address(const std::string& wanted) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, FreeAddresses> owner(list);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (bytes_of(entry->ifa_addr) == wanted) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    variables.emplace_back(*entry);
  }
  return variables;
}

std::string working_directory(const std::vector<std::string>& own) {
  std::error_code error;
  const std::string logical(value_of(own, "PWD"));
  if (logical.starts_with('/') && std::filesystem::equivalent(logical, ".", error)) return logical;
  const auto physical = std::filesystem::current_path(error);
  if (error) {
    throw LaunchError(kExitResource,
                      fmt::format("there is no working directory: {}", error.message()));
  }
  return physical.string();
}

std::string own_host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

bool is_this_host(std::string_view name) {
  if (same_name(name, "localhost")) return true;
  if (const auto address = parse_address(std::string(name))) {
    return address == parse_address("127.0.0.1") || address == parse_address("::1") ||
           is_own_address(*address);
  }
  const std::string own = own_host_name();
  const std::string_view short_own = std::string_view(own).substr(0, own.find('.'));
  return same_name(name, own) || same_name(name, short_own);
}

}  // namespace hvd::launcher
