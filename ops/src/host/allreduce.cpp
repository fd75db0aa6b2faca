#include "host/allreduce.hpp"

#include <cstring>

#include "fusion/pack.hpp"
#include "host/operation_name.hpp"
#include "reduce/reduce_all.hpp"

namespace hvd::detail {
namespace {

/// Large results bypass the cache, unless they replace the input: then their lines are in the cache
/// already, and storing there is fastest.
Stores stores_for(std::span<const std::byte* const> from, std::span<std::byte* const> to,
                  bool large) {
  return large && from.front() != to.front() ? Stores::streamed : Stores::cached;
}

}  // namespace

std::uint64_t name_of(int stage, const AllreduceCall& call, std::int64_t total) noexcept {
  return name_of(OpKind::allreduce,
                 {static_cast<std::uint64_t>(stage),
                  static_cast<std::uint64_t>(call.dtype) << 8 | static_cast<std::uint64_t>(call.op),
                  call.tensors.size(), static_cast<std::uint64_t>(total)});
}

void write_small(HostGroup& group, const AllreduceCall& call, std::int64_t total) {
  const HostArithmetic arithmetic(Arithmetic::of(call, group.size()));
  CallObserver* const observer = call.tensors.size() == 1 ? nullptr : call.observer;
  observed(observer, &CallObserver::copied_in, [&] {
    std::byte* to = group.outgoing(static_cast<std::size_t>(total) * arithmetic.element());
    for (const TensorSlice& tensor : call.tensors) {
      arithmetic.load(to, tensor.input, tensor.count);
      to += static_cast<std::size_t>(tensor.count) * arithmetic.element();
    }
  });
}

void small_allreduce(HostGroup& group, const AllreduceCall& call, std::int64_t total,
                     FusionBuffer& scratch, Deadline deadline) {
  const HostArithmetic arithmetic(Arithmetic::of(call, group.size()));
  const std::size_t bytes = static_cast<std::size_t>(total) * arithmetic.element();
  const std::uint64_t name = name_of(0, call, total);
  const bool lone = call.tensors.size() == 1;
  CallObserver* const observer = lone ? nullptr : call.observer;

  group.publish(name);
  // Every rank publishes its whole contribution. Every rank reduces all of them, in rank order and
  // straight from the messages, so all get the same bits.
  std::vector<const std::byte*>& from = group.workspace().from;
  from.resize(static_cast<std::size_t>(group.size()));
  for (int position = 0; position < group.size(); ++position) {
    group.await(position, name, deadline);
    from[static_cast<std::size_t>(position)] = group.incoming(position, bytes);
  }
  std::byte* const to = lone ? call.tensors.front().output : scratch.reserve(bytes);
  if (to != nullptr) reduce_all(arithmetic.reduction(), {&to, 1}, from, total);
  group.end_turn();
  group.wake_others();
  if (lone) return;

  observed(observer, &CallObserver::copied_out, [&] {
    const std::byte* result = to;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t size = static_cast<std::size_t>(tensor.count) * arithmetic.element();
      if (tensor.output != nullptr && size > 0) std::memcpy(tensor.output, result, size);
      result += size;
    }
  });
}

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
  // This rank reduces its part of the row of all tensors: it reads the part in the arena of every
  // rank and stores the result in the arena of every rank. The other ranks do the same with theirs.
  list.for_each_piece(own, [&](std::size_t tensor, Range part, std::int64_t) {
    const std::size_t offset = static_cast<std::size_t>(part.begin) * size;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      from[rank] = tensors.inputs[tensor * ranks + rank] + offset;
      to[rank] = tensors.outputs[tensor * ranks + rank] + offset;
    }
    reduce_all(arithmetic.reduction(), to, from, part.size(), stores_for(from, to, large));
  });
}

}  // namespace hvd::detail
