#include "hierarchy/host_plan.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>

#include "cost/link_cost.hpp"
#include "cost/measure.hpp"
#include "hierarchy/hierarchical_backend.hpp"
#include "ring/ring_backend.hpp"

namespace hvd {
namespace {

constexpr std::size_t kKi = 1024;
constexpr std::array kPoints{Point{OpKind::allreduce, kKi / 4}, Point{OpKind::allreduce, 8 * kKi},
                             Point{OpKind::allreduce, 64 * kKi},
                             Point{OpKind::allreduce, 512 * kKi}};
constexpr std::chrono::milliseconds kBudget{50};

void tell(const Session& session, const LinkCost& cost) {
  if (session.topology().rank != 0) return;
  log(LogLevel::plan, 0,
      fmt::format("from host to host: {:.1f} µs, {:.3f} GB/s", cost.latency_us,
                  cost.bytes_per_us / 1e3));
}

/// And, at the points for which there was no time, and at a whole model's size, ways that take as
/// long as each other: so the default holds there.
std::vector<Sample> with_the_rest(std::vector<Sample> samples) {
  std::vector<Point> points(kPoints.begin(), kPoints.end());
  points.push_back({OpKind::allreduce, 8 * kKi * kKi});
  for (const Point& point : points) {
    const auto measured = [&](const Sample& sample) { return sample.bytes == point.bytes; };
    if (std::any_of(samples.begin(), samples.end(), measured)) continue;
    samples.push_back({point.kind, point.bytes, {1, 1}});
  }
  return samples;
}

}  // namespace

Plan measure_ring(Session& session, RingBackend& ring) {
  const int ranks = session.topology().size;
  const LinkCost cost =
      measure_link(ring, ranks, session.topology().rank == 0, session.start_deadline());
  tell(session, cost);
  return Plan().set(Plan::kRing, ring_ways(cost, ranks));
}

Plan measure_hosts(Session& session, HierarchicalBackend& hosts) {
  const Topology& topology = session.topology();
  const Deadline deadline = session.start_deadline();
  Plan plan;
  std::size_t segment = HierarchicalBackend::kSegment;
  if (Backend* const leaders = hosts.leaders()) {  // rank 0 is one
    const LinkCost cost = measure_link(*leaders, hosts.hosts(), topology.rank == 0, deadline);
    tell(session, cost);
    // Two are added up in either order alike; with more, segments say where the order begins.
    if (hosts.hosts() == 2) segment = segment_for(cost, hosts.hosts());
    plan.set(Plan::kRing, ring_ways(cost, hosts.hosts()));
  }
  const std::array<ContenderWay, 2> ways{{{Way::leaders, 0}, {Way::lanes, segment}}};
  std::vector<Contender> contenders;
  for (const ContenderWay& one : ways) {
    contenders.emplace_back([&hosts, one]() -> Backend& {
      hosts.use(Ways(one.way, HierarchicalBackend::kSegment));  // more than any point's
      return hosts;
    });
  }
  const std::vector<Sample> samples = measure(
      contenders, kPoints,
      {.rank = topology.rank, .size = topology.size, .deadline = deadline, .budget = kBudget});
  const Ways defaults = HierarchicalBackend::default_ways();
  if (topology.rank == 0) {
    for (const Sample& sample : samples) log(LogLevel::plan, 0, describe(sample, ways, defaults));
  }
  return plan.set(Plan::kHosts, choose(OpKind::allreduce, with_the_rest(samples), ways, defaults));
}

}  // namespace hvd
