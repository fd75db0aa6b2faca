#include "host/backend.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/log.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

#include "fusion/staging.hpp"
#include "host/allreduce.hpp"
#include "host/collectives.hpp"
#include "host/fence.hpp"
#include "shm/descriptors.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {
namespace {

/// Describes for the log which algorithm an allreduce of each size uses.
std::string bands(int ranks) {
  return fmt::format(
      "host allreduce: up to {} KiB in one turn; in the arena directly, out of place past the "
      "cache from {} KiB on; else through slots, up to {} KiB in one chunk that every rank "
      "reduces, beyond in chunks of {} KiB, of which each reduces a part",
      HostGroup::kSmall >> 10, (kHostStreamed / static_cast<std::size_t>(ranks)) >> 10,
      StagedAllreduce::kWhole >> 10, HostSlots::kChunk >> 10);
}

}  // namespace

bool HostBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  return device.kind == Device::Kind::cpu && (!reduces(kind) || can_reduce(dtype, op));
}

void HostBackend::abort() noexcept {
  memory_->shared->failure.abort();
  memory_->shared->wait.wake();
}

template <class Body>
void HostBackend::guard(Body body) {
  try {
    memory_->shared->failure.guard(body);
  } catch (...) {
    memory_->exposure.end_by_copying();
    throw;
  }
}

void HostBackend::reduce_alone(const AllreduceCall& call) const {
  const HostArithmetic arithmetic(Arithmetic::of(call, 1));
  for (const TensorSlice& tensor : call.tensors) {
    if (tensor.output == nullptr) continue;
    arithmetic.load(tensor.output, tensor.input, tensor.count);
    const std::byte* const from = tensor.output;
    reduce_all(arithmetic.reduction(), {&tensor.output, 1}, {&from, 1}, tensor.count);
  }
}

bool HostBackend::is_small(const AllreduceCall& call, std::int64_t total) const noexcept {
  return bytes_of(total, call.dtype) <= HostGroup::kSmall;
}

void HostBackend::announce(const AllreduceCall& call, std::uint64_t sequence) {
  guard([&] {
    const std::int64_t total = total_count(call.tensors);
    if (total == 0 || size() == 1) return;
    if (is_small(call, total)) {
      if (call.tensors.size() > 1) return;  // the call reports these copies to its observer
      write_small(*group_, call, total);
      group_->prepare(sequence, 0);
    } else {
      AllreduceCall part = call;
      part.tensors = call.tensors.first(std::min(ArenaPlacement::kMost, call.tensors.size()));
      if (total_count(part.tensors) == 0) return;
      locate(part);
      // Copies of several tensors are left to the call, which reports them to its observer.
      copied_ahead_ = 0;
      if (memory_->placement.none_in_arena() && part.tensors.size() == 1) {
        copied_ahead_ = stage(part, part.tensors, {}).copy_ahead();
      }
      if (!memory_->placement.none_in_arena()) memory_->exposure.begin();
      memory_->placement.write(*group_);
      group_->prepare(sequence, memory_->placement.detail(copied_ahead_));
    }
  });
}

void HostBackend::retract() noexcept {
  group_->drop_prepared();
  memory_->exposure.end();
  copied_ahead_ = 0;
}

void HostBackend::abandon() noexcept { memory_->exposure.end_by_copying(); }

void HostBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  guard([&] {
    const std::int64_t total = total_count(call.tensors);
    if (total == 0) return;
    if (size() == 1) return reduce_alone(call);
    if (is_small(call, total)) {
      if (!group_->is_fenced()) write_small(*group_, call, total);
      return small_allreduce(*group_, call, total, memory_->scratch, deadline);
    }
    AllreduceCall part = call;
    for (std::size_t begin = 0; begin < call.tensors.size(); begin += ArenaPlacement::kMost) {
      part.tensors =
          call.tensors.subspan(begin, std::min(ArenaPlacement::kMost, call.tensors.size() - begin));
      reduce_large(part, deadline);
    }
    group_->wake_others();
  });
}

void HostBackend::locate(const AllreduceCall& call) {
  const HostArithmetic arithmetic(Arithmetic::of(call, size()));
  memory_->placement.locate(call.tensors, arithmetic.element(), *memory_->arena,
                            arithmetic.as_given());
}

StagedAllreduce HostBackend::stage(const AllreduceCall& call, std::span<const TensorSlice> tensors,
                                   Deadline deadline) {
  return {*group_,          tensors,       HostArithmetic(Arithmetic::of(call, size())),
          memory_->scratch, call.observer, deadline};
}

void HostBackend::reduce_large(const AllreduceCall& call, Deadline deadline) {
  const HostArithmetic arithmetic(Arithmetic::of(call, size()));
  const std::int64_t total = total_count(call.tensors);
  if (total == 0) return;
  // Members that sleep at the fence are woken before this rank does its part.
  group_->wake_others();
  ArenaPlacement& placement = memory_->placement;
  const bool fenced = group_->is_fenced();
  if (!fenced) locate(call);
  const std::uint64_t name = name_of(1, call, total);
  // Without a tensor in this arena all tensors are staged, whatever the other ranks publish.
  if (placement.none_in_arena()) {
    StagedAllreduce staged = stage(call, call.tensors, deadline);
    const std::uint64_t copied = staged.begin(std::exchange(copied_ahead_, 0) != 0);
    if (!fenced) placement.write(*group_);
    group_->publish(name, placement.detail(copied));
    placement.await_others(*group_, call.tensors, name, deadline);
    return staged.run();
  }
  memory_->exposure.begin();
  if (!fenced) placement.write(*group_);
  group_->publish(name, placement.detail(0));
  placement.await_others(*group_, call.tensors, name, deadline);
  const bool direct = placement.direct().list.size() > 0;
  if (direct) direct_allreduce(*group_, placement.direct(), arithmetic);
  if (!placement.staged().empty()) {
    StagedAllreduce staged = stage(call, placement.staged(), deadline);
    staged.begin(false);
    staged.run();
  }
  if (direct) group_->barrier(name_of(2, call, total), deadline);
  memory_->exposure.end();
}

template <class Call>
void HostBackend::exchange(Exchange<Call> operation, const Call& call, Deadline deadline) {
  guard([&] {
    operation(*group_, *memory_->arena, call, deadline);
    group_->wake_others();
  });
}

void HostBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  exchange(host_reducescatter, call, deadline);
}

void HostBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  exchange(host_allgather, call, deadline);
}

void HostBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  exchange(host_broadcast, call, deadline);
}

void HostBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  exchange(host_alltoall, call, deadline);
}

void HostBackend::barrier(Deadline deadline) {
  guard([&] {
    if (size() == 1) return;
    group_->barrier(static_cast<std::uint64_t>(OpKind::barrier), deadline);
    group_->wake_others();
  });
}

std::unique_ptr<Backend> HostBackend::subset(std::span<const int> ranks, Deadline deadline) {
  std::unique_ptr<Backend> made;
  guard([&] {
    static_cast<void>(rank_in_subset(ranks, group_->self(), size()));
    std::vector<int> in_context;
    for (const int rank : ranks) in_context.push_back(group_->member(rank).neighbour.rank);
    auto group = memory_->shared->group(in_context);
    group->attach(deadline);
    made = std::make_unique<HostBackend>(memory_, std::move(group));
  });
  return made;
}

}  // namespace hvd::detail

namespace hvd {

using namespace detail;

HostEngine make_host_engine(Session& session) {
  const std::vector<int> ranks = ranks_here(session.topology());
  const int here = static_cast<int>(ranks.size());
  auto shared = share_host_memory(session, arena_size_for(session.config().arena_size, here));
  if (log_enabled(LogLevel::plan)) log(LogLevel::plan, session.topology().rank, bands(here));

  HostEngine engine;
  engine.fence = std::make_unique<HostFence>(shared);
  auto memory = std::make_shared<HostMemory>(shared);
  engine.arena = memory->arena;
  engine.backend = std::make_unique<HostBackend>(std::move(memory), shared->group(ranks));
  return engine;
}

std::unique_ptr<ReadyFence> make_host_fence(Session& session) {
  return std::make_unique<HostFence>(share_host_memory(session, 0));
}

}  // namespace hvd
