// Ranks as threads of one process.
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/ops/arrivals.hpp>

#include "arrivals/board.hpp"

namespace hvd {

std::vector<std::unique_ptr<Arrivals>> make_in_process_arrivals(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto lines = std::make_shared<std::vector<ArrivalLine>>(ranks);
  std::vector<Board> boards(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    boards[rank].rank = static_cast<int>(rank);
    boards[rank].own = &(*lines)[rank];
    boards[rank].memory = lines;
    boards[rank].peers.resize(ranks);
    for (std::size_t other = 0; other < rank; ++other) {
      std::array<int, 2> ends{};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw Error(Errc::resource, fmt::format("socketpair: {}", std::strerror(errno)));
      }
      boards[rank].peers[other] = {&(*lines)[other], UniqueFd(ends[0])};
      boards[other].peers[rank] = {&(*lines)[rank], UniqueFd(ends[1])};
    }
  }
  std::vector<std::unique_ptr<Arrivals>> arrivals;
  for (Board& board : boards) arrivals.push_back(make_board_arrivals(std::move(board)));
  return arrivals;
}

}  // namespace hvd
