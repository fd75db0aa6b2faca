#include "host/host_backend.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "fusion/staging.hpp"
#include "group/subset.hpp"
#include "host/allreduce.hpp"
#include "host/collectives.hpp"

namespace hvd {

HostShared::HostShared(std::shared_ptr<const HostSegment> segment, std::vector<Peer> others,
                       int own_rank, int spins)
    : rank(own_rank),
      own(std::move(segment)),
      peers(std::move(others)),
      arena(std::make_shared<HostArena>(own, HostSegment::arena_begin())),
      waiting(own->doorbell(), spins, failure) {}

HostShared::~HostShared() {
  // Where a rank may be late, its results too: the arena may be used for other things by then.
  if (failure.aborted() || exposure.given_up()) return;
  for (std::byte* const block : blocks) arena->deallocate(block);
}

HostMember HostShared::member(int of, std::size_t block) const {
  const Peer& peer = peers[static_cast<std::size_t>(of)];
  const HostSegment& segment = of == rank ? *own : peer.segment;
  return {{of, &segment.doorbell(), peer.stream.get()},
          segment.data(),
          HostSegment::arena_begin(),
          segment.size(),
          segment.data() + block};
}

HostBackend::HostBackend(std::shared_ptr<HostShared> shared, std::shared_ptr<HostGroup> group,
                         std::vector<int> ranks, std::unique_ptr<Backend> others)
    : shared_(std::move(shared)),
      group_(std::move(group)),
      ranks_(std::move(ranks)),
      others_(std::move(others)) {}

bool HostBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  return others_->supports(kind, device, dtype, op);
}

void HostBackend::abort() noexcept {
  shared_->failure.abort();
  shared_->waiting.wake();
  others_->abort();
  shared_->exposure.abort();
}

template <class Body>
void HostBackend::guard(Body body) {
  try {
    shared_->failure.guard(body);
  } catch (...) {
    shared_->exposure.give_up();
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
  return static_cast<std::size_t>(total) * size_of(call.dtype) <= HostGroup::kSmall;
}

void HostBackend::announce(const AllreduceCall& call, std::uint64_t ticket) {
  guard([&] {
    const std::int64_t total = total_count(call.tensors);
    if (total == 0 || size() == 1 || !group_) return;
    if (is_small(call, total)) {
      if (call.tensors.size() > 1) return;  // copies are for the call's observer
      group_->announce(ticket);
      say_small(*group_, call, total);
    } else {
      AllreduceCall part = call;
      part.tensors = call.tensors.first(std::min(Residency::kMost, call.tensors.size()));
      if (total_count(part.tensors) == 0) return;
      group_->announce(ticket);
      look_at(part);
      // Copies of a list are for the call's observer.
      std::uint64_t copied = 0;
      if (shared_->residency.nothing_here() && part.tensors.size() == 1) {
        copied = stage(part, part.tensors, {}).copy_ahead();
      }
      copied_ahead_ = copied != 0;
      if (!shared_->residency.nothing_here()) {
        shared_->exposure.announce();
        shared_->failure.check();
      }
      shared_->residency.say(*group_, name_of(1, part, total_count(part.tensors)), copied);
    }
    announced_ = true;
  });
}

void HostBackend::retract() noexcept {
  if (std::exchange(announced_, false)) group_->retract();
  shared_->exposure.retract();
  copied_ahead_ = false;
}

void HostBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  guard([&] {
    const std::int64_t total = total_count(call.tensors);
    if (total == 0) return;
    if (size() == 1) return reduce_alone(call);
    if (!group_) return others_->allreduce(call, deadline);
    bool said = std::exchange(announced_, false);
    if (is_small(call, total)) {
      if (!said) say_small(*group_, call, total);
      return small_allreduce(*group_, call, total, shared_->scratch, deadline);
    }
    AllreduceCall part = call;
    for (std::size_t begin = 0; begin < call.tensors.size(); begin += Residency::kMost) {
      part.tensors =
          call.tensors.subspan(begin, std::min(Residency::kMost, call.tensors.size() - begin));
      reduce_large(part, std::exchange(said, false), deadline);
    }
    group_->end_operation();
  });
}

void HostBackend::look_at(const AllreduceCall& call) {
  const HostArithmetic arithmetic(Arithmetic::of(call, size()));
  shared_->residency.look_at(call.tensors, arithmetic.element(), *shared_->arena,
                             arithmetic.as_given());
}

StagedAllreduce HostBackend::stage(const AllreduceCall& call, std::span<const TensorSlice> tensors,
                                   Deadline deadline) {
  return {*group_,          tensors,       HostArithmetic(Arithmetic::of(call, size())),
          shared_->scratch, call.observer, deadline};
}

void HostBackend::reduce_large(const AllreduceCall& call, bool said, Deadline deadline) {
  const HostArithmetic arithmetic(Arithmetic::of(call, size()));
  const std::int64_t total = total_count(call.tensors);
  if (total == 0) return;
  Residency& residency = shared_->residency;
  if (!said) look_at(call);
  const std::uint64_t name = name_of(1, call, total);
  if (residency.nothing_here()) {  // so it is known before the others have come
    StagedAllreduce staged = stage(call, call.tensors, deadline);
    const std::uint64_t copied = staged.begin(std::exchange(copied_ahead_, false));
    if (!said) residency.say(*group_, name, copied);
    residency.agree(*group_, call.tensors, name, deadline);
    return staged.run();
  }
  shared_->exposure.begin();
  shared_->failure.check();  // else it may have been taken back before
  if (!said) residency.say(*group_, name);
  residency.agree(*group_, call.tensors, name, deadline);
  const bool direct = residency.direct().list.size() > 0;
  if (direct) direct_allreduce(*group_, residency.direct(), arithmetic);
  if (!residency.staged().empty()) {
    StagedAllreduce staged = stage(call, residency.staged(), deadline);
    staged.begin(false);
    staged.run();
  }
  if (direct) group_->meet(name_of(2, call, total), deadline);
  shared_->exposure.end();
}

template <class Call>
void HostBackend::exchange(Exchange<Call> here, Otherwise<Call> otherwise, const Call& call,
                           Deadline deadline) {
  guard([&] {
    if (!group_) return (*others_.*otherwise)(call, deadline);
    here(*group_, *shared_->arena, call, deadline);
    group_->end_operation();
  });
}

void HostBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  exchange(host_reducescatter, &Backend::reducescatter, call, deadline);
}

void HostBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  exchange(host_allgather, &Backend::allgather, call, deadline);
}

void HostBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  exchange(host_broadcast, &Backend::broadcast, call, deadline);
}

void HostBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  exchange(host_alltoall, &Backend::alltoall, call, deadline);
}

void HostBackend::barrier(Deadline deadline) {
  guard([&] {
    if (size() == 1) return;
    if (!group_) return others_->barrier(deadline);
    group_->meet(static_cast<std::uint64_t>(OpKind::barrier), deadline);
    group_->end_operation();
  });
}

std::unique_ptr<Backend> HostBackend::subset(std::span<const int> ranks, Deadline deadline) {
  std::unique_ptr<Backend> made;
  guard([&] {
    static_cast<void>(rank_in_subset(ranks, group_rank(), size()));
    auto members = others_->subset(ranks, deadline);
    std::vector<int> in_context;
    for (const int rank : ranks) in_context.push_back(ranks_[static_cast<std::size_t>(rank)]);
    auto group = ranks.size() > 1 ? make_group(in_context, *members, deadline) : nullptr;
    made = std::make_unique<HostBackend>(shared_, std::move(group), std::move(in_context),
                                         std::move(members));
  });
  return made;
}

int HostBackend::group_rank() const noexcept {
  return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), shared_->rank) - ranks_.begin());
}

std::shared_ptr<HostGroup> HostBackend::make_group(const std::vector<int>& ranks, Backend& members,
                                                   Deadline deadline) {
  if (const auto known = shared_->groups.find(ranks); known != shared_->groups.end()) {
    return known->second;
  }
  const std::size_t bytes = HostSlots::block_size();
  auto* const block = static_cast<std::byte*>(shared_->arena->allocate(bytes));
  std::uint64_t own = 0;  // the header is there: never a block
  if (block != nullptr) {
    shared_->blocks.push_back(block);
    new (block) HostControl;
    own = shared_->arena->offset_of(block);
  }
  std::vector<std::uint64_t> offsets(ranks.size());
  const std::vector<std::int64_t> one_each(ranks.size(), 1);
  const GatherSlice slice{reinterpret_cast<const std::byte*>(&own),
                          reinterpret_cast<std::byte*>(offsets.data()), one_each};
  members.allgather({{&slice, 1}, {}, DType::i64}, deadline);

  std::shared_ptr<HostGroup> group;
  if (std::find(offsets.begin(), offsets.end(), 0U) == offsets.end()) {
    std::vector<HostMember> found;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      found.push_back(shared_->member(ranks[i], offsets[i]));
      if (offsets[i] % BlockList::kPage != 0 || offsets[i] > found.back().size ||
          bytes > found.back().size - offsets[i]) {
        throw peer_violation(ranks[i], "points outside its arena");
      }
    }
    const auto self = std::find(ranks.begin(), ranks.end(), shared_->rank) - ranks.begin();
    group = std::make_shared<HostGroup>(std::move(found), static_cast<int>(self), shared_->waiting);
  }
  shared_->groups.emplace(ranks, group);
  return group;
}

}  // namespace hvd
