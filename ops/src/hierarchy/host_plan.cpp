#include "hierarchy/host_plan.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/log.hpp>

#include "hierarchy/hierarchical_backend.hpp"
#include "ring/ring_backend.hpp"
#include "tuning/link_cost.hpp"
#include "tuning/measure.hpp"

namespace hvd::detail {
namespace {

constexpr std::array kSizes{
    CallSize{OpKind::allreduce, kKi / 4}, CallSize{OpKind::allreduce, 8 * kKi},
    CallSize{OpKind::allreduce, 64 * kKi}, CallSize{OpKind::allreduce, 512 * kKi}};
constexpr std::chrono::milliseconds kBudget{50};

void log_cost(const Session& session, const LinkCost& cost) {
  if (session.topology().rank != 0) return;
  log(LogLevel::plan, 0,
      fmt::format("from host to host: {:.1f} µs, {:.3f} GB/s", cost.latency_us,
                  cost.bytes_per_us / 1e3));
}

/// Adds equal times for the sizes that there was no time to measure, and for the size of a whole
/// model, so that the default holds there.
std::vector<Timing> with_unmeasured(std::vector<Timing> timings) {
  std::vector<CallSize> sizes(kSizes.begin(), kSizes.end());
  sizes.push_back({OpKind::allreduce, 8 * kKi * kKi});
  for (const CallSize& call : sizes) {
    const auto measured = [&](const Timing& timing) { return timing.bytes == call.bytes; };
    if (std::any_of(timings.begin(), timings.end(), measured)) continue;
    timings.push_back({call.kind, call.bytes, {1, 1}});
  }
  return timings;
}

}  // namespace

AlgorithmPlan measure_ring(Session& session, RingBackend& ring) {
  const int ranks = session.topology().size;
  const LinkCost cost =
      measure_link(ring, ranks, session.topology().rank == 0, session.start_deadline());
  log_cost(session, cost);
  return AlgorithmPlan().set(AlgorithmPlan::kRing, ring_table(cost, ranks));
}

AlgorithmPlan measure_hosts(Session& session, HierarchicalBackend& hosts) {
  const Topology& topology = session.topology();
  const Deadline deadline = session.start_deadline();
  AlgorithmPlan plan;
  std::size_t segment = HierarchicalBackend::kSegment;
  if (Backend* const leaders = hosts.leaders()) {  // rank 0 is one of them
    const LinkCost cost = measure_link(*leaders, hosts.hosts(), topology.rank == 0, deadline);
    log_cost(session, cost);
    // The sum of two hosts is the same in either order. With more hosts the segments determine the
    // order, so their length is not measured.
    if (hosts.hosts() == 2) segment = segment_for(cost, hosts.hosts());
    plan.set(AlgorithmPlan::kRing, ring_table(cost, hosts.hosts()));
  }
  const std::array<Candidate, 2> candidates{{{Algorithm::leaders, 0}, {Algorithm::lanes, segment}}};
  std::vector<CandidateBackend> backends;
  for (const Candidate& one : candidates) {
    backends.emplace_back([&hosts, one]() -> Backend& {
      hosts.use(AlgorithmTable(one.algorithm,
                               HierarchicalBackend::kSegment));  // larger than every size measured
      return hosts;
    });
  }
  const std::vector<Timing> timings = measure(
      backends, kSizes,
      {.rank = topology.rank, .size = topology.size, .deadline = deadline, .budget = kBudget});
  const AlgorithmTable defaults = HierarchicalBackend::default_table();
  if (topology.rank == 0) {
    for (const Timing& timing : timings)
      log(LogLevel::plan, 0, describe(timing, candidates, defaults));
  }
  return plan.set(AlgorithmPlan::kHosts,
                  choose(OpKind::allreduce, with_unmeasured(timings), candidates, defaults));
}

}  // namespace hvd::detail
