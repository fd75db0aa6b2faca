#include <algorithm>
#include <optional>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/text.hpp>

namespace hvd {
namespace {

constexpr std::size_t kMaxText = 300;
constexpr std::size_t kMaxHost = 253;  // RFC 1123, 2.1
constexpr std::size_t kMaxLabel = 63;  // RFC 1035, 2.3.4
constexpr std::size_t kMaxUnix = sizeof(sockaddr_un::sun_path) - 1;

bool is_name_character(char c) { return detail::is_alphanumeric(c) || c == '_'; }

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= kMaxLabel && is_name_character(label.front()) &&
         is_name_character(label.back()) && std::all_of(label.begin(), label.end(), [](char c) {
           return is_name_character(c) || c == '-';
         });
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return detail::to_number<std::uint16_t>(text);
}

// Quotes text from outside for an error message: it is short, and a terminal interprets none of it.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, 80));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return fmt::format("'{}'{}", shown, text.size() > 80 ? "…" : "");
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw Error(Errc::invalid_argument, fmt::format("address {}: {}", quoted(text), why));
}

Address parse_unix(std::string_view text, std::string_view rest) {
  if (rest.empty() || (rest.front() != '@' && rest.front() != '/')) {
    refuse(text, "a Unix socket is '@name' or an absolute path");
  }
  if (rest.size() > kMaxUnix) refuse(text, "the socket's name is too long");
  if (!detail::is_graphic(rest)) refuse(text, "the socket's name is not printable");
  return {Address::Kind::unix_socket, std::string(rest), 0};
}

Address parse_tcp(std::string_view text, std::string_view rest) {
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) refuse(text, "expected tcp:host:port");
  const std::optional<std::uint16_t> port = parse_port(rest.substr(colon + 1));
  if (!port) refuse(text, "the port is not a number from 0 to 65535");
  const std::string_view host = rest.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    std::string v6(host.substr(1, host.size() - 2));
    if (!is_ipv6_address(v6)) refuse(text, "not an IPv6 address");
    return {Address::Kind::tcp, std::move(v6), *port};
  }
  if (!is_host_name(host)) refuse(text, "not a host name or address");
  return {Address::Kind::tcp, std::string(host), *port};
}

}  // namespace

bool is_host_name(std::string_view host) noexcept {
  if (host.empty() || host.size() > kMaxHost) return false;
  for (std::size_t begin = 0; begin <= host.size();) {
    const std::size_t end = std::min(host.find('.', begin), host.size());
    if (!is_label(host.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

bool is_ipv6_address(const std::string& host) noexcept {
  in6_addr address{};
  return host.find('\0') == std::string::npos && ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_loopback(std::string_view host) noexcept {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Address Address::parse(std::string_view text) {
  if (text.size() > kMaxText) refuse(text, "too long");
  if (text.starts_with("unix:")) return parse_unix(text, text.substr(5));
  if (text.starts_with("tcp:")) return parse_tcp(text, text.substr(4));
  refuse(text, "expected unix:@name, unix:/path or tcp:host:port");
}

std::string Address::to_string() const {
  if (kind == Kind::unix_socket) return "unix:" + host;
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("tcp:[{}]:{}", host, port) : fmt::format("tcp:{}:{}", host, port);
}

}  // namespace hvd
