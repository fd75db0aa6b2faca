#include "ring/barrier.hpp"

namespace hvd {

void dissemination_barrier(Transport& transport, Deadline deadline) {
  const int rank = transport.rank();
  const int size = transport.size();
  const std::byte token{1};
  std::byte received{};
  for (int distance = 1; distance < size; distance *= 2) {
    transport.exchange(
        {.peer = (rank + distance) % size, .bytes = {&token, 1}},
        {.peer = (rank - distance + size) % size, .size = 1, .into = &received, .sink = {}},
        deadline);
  }
}

}  // namespace hvd
