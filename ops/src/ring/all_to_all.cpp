#include "ring/all_to_all.hpp"

#include "fusion/byte_offsets.hpp"
#include "fusion/copy_bytes.hpp"

namespace hvd {

void pairwise_all_to_all(Transport& transport, const AlltoallCall& call, Deadline deadline) {
  const int rank = transport.rank();
  const int size = transport.size();
  const std::vector<std::size_t> sends = byte_offsets(call.send_counts, call.dtype);
  const std::vector<std::size_t> receives = byte_offsets(call.receive_counts, call.dtype);
  const auto me = static_cast<std::size_t>(rank);
  copy_bytes(call.output + receives[me], call.input + sends[me], sends[me + 1] - sends[me]);
  for (int distance = 1; distance < size; ++distance) {
    const auto to = static_cast<std::size_t>((rank + distance) % size);
    const auto from = static_cast<std::size_t>((rank - distance + size) % size);
    transport.exchange({.peer = static_cast<int>(to),
                        .bytes = {call.input + sends[to], sends[to + 1] - sends[to]}},
                       {.peer = static_cast<int>(from),
                        .size = receives[from + 1] - receives[from],
                        .into = call.output + receives[from],
                        .sink = {}},
                       deadline);
  }
}

}  // namespace hvd
