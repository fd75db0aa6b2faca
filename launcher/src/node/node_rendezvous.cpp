#include "node/node_rendezvous.hpp"

#include <array>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/poll.hpp>

#include "base/exit_codes.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {

NodeTrust trust_of(const NodeConfig& config, const std::vector<std::string>& own) {
  const std::string file(value_of(own, "HVD_SECRET_FILE"));
  if (!file.empty()) {
    try {
      return {.secret = Secret::from_file(file), .insecure = false};
    } catch (const Error& error) {
      throw LaunchError(kExitUnauthenticated, fmt::format("HVD_SECRET_FILE: {}", error.what()));
    }
  }
  if (config.one_machine()) return {};
  if (value_of(own, "HVD_INSECURE") == "1") return {.secret = {}, .insecure = true};
  throw LaunchError(kExitUnauthenticated,
                    fmt::format("the nodes meet at {} and share no secret: put 32 random bytes "
                                "into a file of mode 0600 and name it in HVD_SECRET_FILE on every "
                                "node (HVD_INSECURE=1 lets anybody in)",
                                config.endpoint()));
}

std::string rendezvous_address(const NodeConfig& config) {
  if (config.one_machine()) return fmt::format("unix:@hvd-node-{}-{}", config.address, config.port);
  return Address{Address::Kind::tcp, config.address, config.port}.to_string();
}

std::string own_block(int stream) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(stream, reinterpret_cast<sockaddr*>(&own), &size) != 0) return {};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (own.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&own);
    ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    return fmt::format("{}/32", text.data());
  }
  if (own.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&own);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    return fmt::format("{}/128", text.data());
  }
  return {};
}

namespace {

/// Fills `to` from a non-blocking stream; returns false at its end or at the deadline.
bool read_all(int stream, std::span<std::byte> to, Deadline deadline) {
  while (!to.empty()) {
    const ssize_t size = ::recv(stream, to.data(), to.size(), MSG_DONTWAIT);
    if (size > 0) {
      to = to.subspan(static_cast<std::size_t>(size));
      continue;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    pollfd ready{.fd = stream, .events = POLLIN, .revents = 0};
    if (Clock::now() >= deadline || !poll_until({&ready, 1}, deadline)) return false;
  }
  return true;
}

}  // namespace

std::optional<Join> read_join(int stream, Deadline deadline) {
  constexpr std::uint32_t kLongest = 1'024;
  std::array<std::byte, sizeof(std::uint32_t)> length{};
  if (!read_all(stream, length, deadline)) return std::nullopt;
  const std::uint32_t size = WireReader(length, "launcher frame").u32();
  if (size == 0 || size > kLongest) return std::nullopt;
  Bytes body(size);
  if (!read_all(stream, body, deadline)) return std::nullopt;
  try {
    const Frame frame = decode(body);
    if (const auto* join = std::get_if<Join>(&frame)) return *join;
  } catch (const Error&) {
    // A frame that cannot be decoded is no Join; the caller reports that.
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
