// The plan of an engine that spans hosts: what is measured for it.
#pragma once

#include <hvd/core/backend.hpp>

#include "cost/plan.hpp"

namespace hvd {

class HierarchicalBackend;
class RingBackend;
class Session;

/// Of a ring over all ranks, when hosts share nothing: doubling or ring.
[[nodiscard]] Plan measure_ring(Session& session, RingBackend& ring);

/// Of a hierarchy: leaders or lanes, the length of segments, and, between the leaders, doubling or
/// ring. Chooses among what gives the same bits only, so that those do not differ between runs:
/// with more than two hosts segments have their default length.
[[nodiscard]] Plan measure_hosts(Session& session, HierarchicalBackend& hosts);

}  // namespace hvd
