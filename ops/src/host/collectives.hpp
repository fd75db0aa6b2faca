// Declares broadcast, allgather, reducescatter and alltoall within a host, each as one
// HostExchange.
#pragma once

#include <hvd/core/internal/backend.hpp>

#include "host/arena.hpp"
#include "host/group.hpp"

namespace hvd::detail {

void host_broadcast(HostGroup& group, const HostArena& arena, const BroadcastCall& call,
                    Deadline deadline);
void host_allgather(HostGroup& group, const HostArena& arena, const AllgatherCall& call,
                    Deadline deadline);
/// Adds up in rank order and rounds once, as the allreduce of a host does. A null input contributes
/// identity elements, and the result for a null output is discarded.
void host_reducescatter(HostGroup& group, const HostArena& arena, const ReducescatterCall& call,
                        Deadline deadline);
void host_alltoall(HostGroup& group, const HostArena& arena, const AlltoallCall& call,
                   Deadline deadline);

}  // namespace hvd::detail
