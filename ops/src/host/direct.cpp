#include "host/allreduce.hpp"

namespace hvd {
namespace {

/// What is reduced in place is in the cache already, and stored there soonest.
Stores stores_for(std::span<const std::byte* const> from, std::span<std::byte* const> to,
                  bool large) {
  return large && from.front() != to.front() ? Stores::streamed : Stores::cached;
}

}  // namespace

void direct_allreduce(HostGroup& group, const DirectTensors& tensors,
                      const HostArithmetic& arithmetic) {
  const TensorList& list = tensors.list;
  const std::size_t size = arithmetic.element();
  const auto ranks = static_cast<std::size_t>(group.size());
  const bool large = static_cast<std::size_t>(list.total()) * size * ranks > kHostStreamed;
  const Range own{list.boundary(group.self(), group.size(), arithmetic.line()),
                  list.boundary(group.self() + 1, group.size(), arithmetic.line())};

  std::vector<const std::byte*>& from = group.workspace().from;
  std::vector<std::byte*>& to = group.workspace().to;
  from.resize(ranks);
  to.resize(ranks);
  list.for_each_piece(own, [&](std::size_t tensor, Range part, std::int64_t) {
    const std::size_t offset = static_cast<std::size_t>(part.begin) * size;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      from[rank] = tensors.inputs[tensor * ranks + rank] + offset;
      to[rank] = tensors.outputs[tensor * ranks + rank] + offset;
    }
    reduce_all(arithmetic.reduction(), to, from, part.size(), stores_for(from, to, large));
  });
}

}  // namespace hvd
