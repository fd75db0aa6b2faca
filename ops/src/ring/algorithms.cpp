#include "ring/algorithms.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "fusion/blocks.hpp"
#include "reduce/reduce.hpp"

namespace hvd::detail {
namespace {

/// Returns where the partial sum of a chunk is stored in a step. It must not be the destination of
/// the step before, from which this rank is sending meanwhile.
using PartialDestination = std::function<std::byte*(std::size_t step, int chunk)>;

/// Runs the first half of the ring, the reduce-scatter. Ranks and chunks are numbered modulo n
/// around the ring, as in the plan. In step s, from 0 to n-2, rank r sends chunk r-s-1 to the next
/// rank: its own contribution in step 0, later the partial sum of the previous step. It receives
/// the partial sum of chunk r-s-2 from the previous rank, and combines it with its own contribution
/// while it arrives. In the last step that is chunk r, to which now all ranks have contributed: the
/// sum is complete, and `finish` divides and scales it. It is then at the destination of the last
/// step, or in `job.result` when there is one rank only.
void reduce_around(Transport& transport, const RingPlan& plan, const Reduction& job,
                   const PartialDestination& destination, Deadline deadline) {
  const Accumulator& elements = job.elements;
  const std::size_t value = size_of(elements.dtype());
  const std::byte* outgoing = nullptr;  // the partial sum of the previous step
  std::byte* to = job.result;
  for (std::size_t s = 0; s < plan.reduce_scatter.size(); ++s) {
    const RingStep& step = plan.reduce_scatter[s];
    const std::byte* const own = job.own + job.offset(step.receive);
    to = destination(s, step.receive);
    const auto combine = [&](std::size_t offset, std::span<const std::byte> bytes) {
      reduce(elements.dtype(), elements.op(), to + offset, own + offset, bytes.data(),
             static_cast<std::int64_t>(bytes.size() / value));
    };
    transport.exchange(
        {.peer = plan.next,
         .bytes = {s == 0 ? job.own + job.offset(step.send) : outgoing, job.size(step.send)}},
        {.peer = plan.previous,
         .size = job.size(step.receive),
         .into = nullptr,
         .sink = [&combine](std::size_t offset, auto bytes) { combine(offset, bytes); },
         .granularity = value},
        deadline);
    outgoing = to;
  }
  const int rank = transport.rank();
  if (transport.size() == 1) copy_bytes(to, job.own, job.size(rank));
  elements.finish(to, job.count(rank));
}

}  // namespace

void ring_allreduce(Transport& transport, const RingPlan& plan, const Reduction& job,
                    Deadline deadline) {
  const auto destination = [&](std::size_t, int chunk) { return job.result + job.offset(chunk); };
  reduce_around(transport, plan, job, destination, deadline);
  ring_all_gather(transport, plan, job.result, job.bounds, job.elements.element_size(), deadline);
}

void doubling_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline) {
  const int rank = transport.rank();
  const int size = transport.size();
  const std::size_t bytes = job.bytes();
  std::byte* const slots = scratch.reserve(bytes * static_cast<std::size_t>(size));
  const auto slot = [&](int after) { return slots + bytes * static_cast<std::size_t>(after); };

  // Slot j holds the contribution of the j-th rank after this one. Before each turn the first
  // `known` slots are filled. This rank sends all of them, in the last turn only as many as the
  // receiver lacks, to the rank `known` before it, for which they are the slots from `known` on;
  // likewise it receives its own next slots from the rank `known` after it. After ceil(log2 n)
  // turns every rank has all contributions.
  copy_bytes(slot(0), job.own, bytes);
  for (int known = 1; known < size; known *= 2) {
    const std::size_t news = bytes * static_cast<std::size_t>(std::min(known, size - known));
    transport.exchange(
        {.peer = (rank - known + size) % size, .bytes = {slots, news}},
        {.peer = (rank + known) % size, .size = news, .into = slot(known), .sink = {}}, deadline);
  }

  const auto contribution = [&](int r) -> const std::byte* {
    const int after = (r - rank + size) % size;
    return after == 0 ? job.own : slot(after);
  };
  // Each rank reduces every chunk, in the order in which it would pass around the ring: chunk k
  // from the contribution of rank k+1 to that of rank k.
  for (int k = 0; k < size; ++k) {
    if (job.count(k) == 0)
      continue;  // most chunks are empty where there are fewer elements than ranks
    const std::size_t offset = job.offset(k);
    const std::byte* partial = contribution((k + 1) % size) + offset;
    for (int hop = 2; hop <= size; ++hop) {
      // Partial sums are stored in slot 0, which has been sent, because `result` may be `own`.
      std::byte* const to = (hop == size ? job.result : slot(0)) + offset;
      reduce(job.elements.dtype(), job.elements.op(), to, contribution((k + hop) % size) + offset,
             partial, job.count(k) * job.elements.lanes());
      partial = to;
    }
  }
  if (size == 1) copy_bytes(job.result, job.own, bytes);
  job.elements.finish(job.result, job.bounds.back());
}

void ring_reduce_scatter(Transport& transport, const RingPlan& plan, const Reduction& job,
                         FusionBuffer& partials, Deadline deadline) {
  std::size_t largest = 0;
  for (int k = 0; k < transport.size(); ++k) largest = std::max(largest, job.size(k));
  // One partial sum is being sent while the next is being received, so there are two slots.
  std::byte* const slots = partials.reserve(2 * largest);
  const auto destination = [&](std::size_t step, int chunk) {
    return chunk == transport.rank() ? job.result : slots + step % 2 * largest;
  };
  reduce_around(transport, plan, job, destination, deadline);
}

void ring_all_gather(Transport& transport, const RingPlan& plan, std::byte* data,
                     std::span<const std::int64_t> bounds, std::size_t unit, Deadline deadline) {
  const auto block = [&](int k) {
    const std::size_t begin = static_cast<std::size_t>(bounds[static_cast<std::size_t>(k)]) * unit;
    const std::size_t end =
        static_cast<std::size_t>(bounds[static_cast<std::size_t>(k) + 1]) * unit;
    return std::span<std::byte>(data + begin, end - begin);
  };
  // Ranks and blocks are numbered modulo n around the ring. In step s, from 0 to n-2, rank r sends
  // block r-s to the next rank: its own in step 0, later the one received in the previous step. It
  // receives block r-s-1 from the previous rank at its final place. After n-1 steps it has all.
  for (const RingStep& step : plan.all_gather) {
    const std::span<std::byte> received = block(step.receive);
    transport.exchange(
        {.peer = plan.next, .bytes = block(step.send)},
        {.peer = plan.previous, .size = received.size(), .into = received.data(), .sink = {}},
        deadline);
  }
}

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

void dissemination_barrier(Transport& transport, Deadline deadline) {
  const int rank = transport.rank();
  const int size = transport.size();
  // After the turn with distance d a rank knows that it and the 2d-1 ranks before it have arrived:
  // the rank d before it knew of d ranks when it sent its token.
  const std::byte token{1};
  std::byte received{};
  for (int distance = 1; distance < size; distance *= 2) {
    transport.exchange(
        {.peer = (rank + distance) % size, .bytes = {&token, 1}},
        {.peer = (rank - distance + size) % size, .size = 1, .into = &received, .sink = {}},
        deadline);
  }
}

}  // namespace hvd::detail
