#include "arrivals/ticket.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {

std::size_t position_in(std::span<const int> members, int rank, int size) {
  std::size_t position = members.size();
  int last = -1;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] <= last || members[i] >= size) {
      throw Error(Errc::invalid_argument, "members are not ascending ranks");
    }
    last = members[i];
    if (last == rank) position = i;
  }
  if (position == members.size()) {
    throw Error(Errc::invalid_argument, fmt::format("rank {} is not among the members", rank));
  }
  return position;
}

void check_order(std::uint64_t last, std::uint64_t ticket) {
  if (ticket > last) return;
  throw Error(Errc::invalid_argument, fmt::format("ticket {} after {}", ticket, last));
}

}  // namespace hvd
