#include "host/collectives.hpp"

#include <algorithm>

#include "fusion/address.hpp"
#include "fusion/staging.hpp"
#include "host/exchange.hpp"
#include "host/operation_name.hpp"

namespace hvd::detail {

void host_broadcast(HostGroup& group, const HostArena& arena, const BroadcastCall& call,
                    Deadline deadline) {
  const std::size_t total = bytes_of(total_count(call.tensors), call.dtype);
  if (total == 0) return;
  const std::size_t tensors = call.tensors.size();
  const auto root = static_cast<std::size_t>(call.root);
  HostExchange exchange(group, arena, nullptr, deadline);
  exchange.give().reset(1, tensors);
  exchange.take().reset(static_cast<std::size_t>(group.size()), tensors);
  for (std::size_t t = 0; t < tensors; ++t) {
    const TensorSlice& tensor = call.tensors[t];
    const std::size_t bytes = bytes_of(tensor.count, call.dtype);
    if (group.self() == call.root) exchange.give().set(0, t, tensor.input, bytes);
    exchange.take().set(root, t, tensor.output, bytes);
  }
  exchange.run(
      name_of(OpKind::broadcast, {static_cast<std::uint64_t>(call.dtype), tensors, total, root}),
      total);
}

void host_allgather(HostGroup& group, const HostArena& arena, const AllgatherCall& call,
                    Deadline deadline) {
  const std::size_t tensors = call.tensors.size();
  const auto self = static_cast<std::size_t>(group.self());
  HostExchange exchange(group, arena, nullptr, deadline);
  exchange.give().reset(1, tensors);
  exchange.take().reset(static_cast<std::size_t>(group.size()), tensors);
  std::size_t total = 0;
  for (std::size_t t = 0; t < tensors; ++t) {
    const GatherSlice& tensor = call.tensors[t];
    std::size_t offset = 0;
    for (std::size_t rank = 0; rank < tensor.counts.size(); ++rank) {
      const std::size_t bytes = bytes_of(tensor.counts[rank], call.dtype);
      if (rank == self) exchange.give().set(0, t, tensor.input, bytes);
      exchange.take().set(rank, t, moved(tensor.output, offset), bytes);
      offset += bytes;
    }
    total += offset;
  }
  if (total == 0) return;
  exchange.run(name_of(OpKind::allgather, {static_cast<std::uint64_t>(call.dtype), tensors, total}),
               exchange.take().most());
}

void host_reducescatter(HostGroup& group, const HostArena& arena, const ReducescatterCall& call,
                        Deadline deadline) {
  const std::size_t tensors = call.tensors.size();
  const auto self = static_cast<std::size_t>(group.self());
  const HostArithmetic arithmetic(Arithmetic::of(call, group.size()));
  HostExchange exchange(group, arena, &arithmetic, deadline);
  exchange.give().reset(static_cast<std::size_t>(group.size()), tensors);
  exchange.take().reset(1, tensors);
  std::size_t total = 0;
  for (std::size_t t = 0; t < tensors; ++t) {
    const ScatterSlice& tensor = call.tensors[t];
    std::size_t offset = 0;
    for (std::size_t rank = 0; rank < tensor.counts.size(); ++rank) {
      const std::size_t bytes = bytes_of(tensor.counts[rank], call.dtype);
      exchange.give().set(rank, t, moved(tensor.input, offset), bytes);
      if (rank == self) exchange.take().set(0, t, tensor.output, bytes);
      offset += bytes;
    }
    total += offset;
  }
  if (total == 0) return;
  exchange.run(
      name_of(OpKind::reducescatter, {static_cast<std::uint64_t>(call.dtype),
                                      static_cast<std::uint64_t>(call.op), tensors, total}),
      exchange.give().most());
}

void host_alltoall(HostGroup& group, const HostArena& arena, const AlltoallCall& call,
                   Deadline deadline) {
  HostExchange exchange(group, arena, nullptr, deadline);
  exchange.give().reset(call.send_counts.size(), 1);
  exchange.take().reset(call.receive_counts.size(), 1);
  std::size_t sent = 0;
  std::size_t received = 0;
  for (std::size_t rank = 0; rank < call.send_counts.size(); ++rank) {
    const std::size_t to = bytes_of(call.send_counts[rank], call.dtype);
    const std::size_t from = bytes_of(call.receive_counts[rank], call.dtype);
    exchange.give().set(rank, 0, moved(call.input, sent), to);
    exchange.take().set(rank, 0, moved(call.output, received), from);
    sent += to;
    received += from;
  }
  // A rank does not know how much the other ranks send each other.
  exchange.run(name_of(OpKind::alltoall, {static_cast<std::uint64_t>(call.dtype)}), std::nullopt);
}

}  // namespace hvd::detail
