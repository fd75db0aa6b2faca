// Meeting around one line of memory per rank.
#pragma once

#include <memory>
#include <vector>

#include <hvd/core/arrivals.hpp>
#include <hvd/core/fd.hpp>

#include "arrivals/line.hpp"

namespace hvd {

struct BoardPeer {
  const ArrivalLine* line = nullptr;
  UniqueFd stream;  ///< a byte wakes the sleeper at the other end; its end is the peer's end
};

/// One rank's view of the board.
struct Board {
  int rank = 0;
  ArrivalLine* own = nullptr;
  std::vector<BoardPeer> peers;        ///< by rank; nothing at `rank`
  std::shared_ptr<const void> memory;  ///< keeps the lines
};

[[nodiscard]] std::unique_ptr<Arrivals> make_board_arrivals(Board board);

}  // namespace hvd
