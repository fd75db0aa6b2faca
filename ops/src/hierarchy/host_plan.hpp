// Measures the plan of an engine that spans hosts.
#pragma once

#include <hvd/core/internal/backend.hpp>

#include "tuning/algorithm_plan.hpp"

namespace hvd {
class Session;
}

namespace hvd::detail {

class HierarchicalBackend;
class RingBackend;

/// Chooses doubling or ring by size for a ring over all ranks. Collective.
[[nodiscard]] AlgorithmPlan measure_ring(Session& session, RingBackend& ring);

/// Chooses leaders or lanes by size for a hierarchy, the length of segments, and doubling or ring
/// between the leaders. Collective. All choices give the same bits, so that results do not differ
/// between runs: with more than two hosts the segments determine the bits, so they keep their
/// default length.
[[nodiscard]] AlgorithmPlan measure_hosts(Session& session, HierarchicalBackend& hosts);

}  // namespace hvd::detail
