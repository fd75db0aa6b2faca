#include "transport/round_trip.hpp"

#include <cstddef>

#include <linux/tcp.h>  // libc's own tcp_info ends before the field
#include <netinet/in.h>
#include <sys/socket.h>

namespace hvd::detail {

std::optional<std::chrono::microseconds> shortest_round_trip(int stream) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(stream, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (size < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) return std::nullopt;
  if (info.tcpi_min_rtt == 0 || info.tcpi_min_rtt == ~0U) return std::nullopt;  // none yet
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace hvd::detail
