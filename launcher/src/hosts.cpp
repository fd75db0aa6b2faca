#include "hosts.hpp"

#include <algorithm>
#include <charconv>

#include <arpa/inet.h>
#include <fmt/format.h>

#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

constexpr int kMaxSlots = 65'536;
constexpr std::size_t kMaxName = 253;  // RFC 1123, 2.1
constexpr std::size_t kMaxLabel = 63;  // RFC 1035, 2.3.4

bool is_alphanumeric(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_label(std::string_view label) noexcept {
  return !label.empty() && label.size() <= kMaxLabel && is_alphanumeric(label.front()) &&
         is_alphanumeric(label.back()) && std::all_of(label.begin(), label.end(), [](char c) {
           return is_alphanumeric(c) || c == '-';
         });
}

bool is_ipv6(const std::string& text) noexcept {
  in6_addr address{};
  return text.find('\0') == std::string::npos && ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

[[noreturn]] void refuse(std::string_view item, std::string_view why) {
  throw LaunchError(kExitUsage, fmt::format("host {}: {}", in_quotes(item), why));
}

int parse_slots(std::string_view item, std::string_view digits) {
  int slots = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
  if (error != std::errc{} || end != digits.data() + digits.size() || slots < 1 ||
      slots > kMaxSlots) {
    refuse(item, fmt::format("the slots are not a number from 1 to {}", kMaxSlots));
  }
  return slots;
}

HostSpec parse_host(std::string_view item) {
  HostSpec host;
  std::string_view rest;
  if (item.starts_with('[')) {
    const auto close = item.find(']');
    if (close == std::string_view::npos) refuse(item, "']' is missing");
    host.name = std::string(item.substr(1, close - 1));
    if (!is_ipv6(host.name)) refuse(item, "not an IPv6 address");
    rest = item.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') refuse(item, "expected ':slots' after ']'");
  } else {
    const auto colon = item.find(':');
    host.name = std::string(item.substr(0, colon));
    if (!is_host_name(host.name)) refuse(item, "not a host name or address");
    rest = colon == std::string_view::npos ? std::string_view{} : item.substr(colon);
  }
  if (!rest.empty()) host.slots = parse_slots(item, rest.substr(1));
  return host;
}

}  // namespace

bool is_host_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > kMaxName) return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('.', begin), name.size());
    if (!is_label(name.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return to_lower(x) == to_lower(y); });
}

std::vector<HostSpec> parse_hosts(std::string_view text) {
  std::vector<HostSpec> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    HostSpec host = parse_host(text.substr(begin, end - begin));
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const HostSpec& other) {
      return same_name(other.name, host.name);
    });
    if (known == hosts.end()) {
      hosts.push_back(std::move(host));
    } else {
      known->slots = std::min(known->slots + host.slots, kMaxSlots);
    }
    begin = end + 1;
  }
  return hosts;
}

}  // namespace hvd::launcher
