// Declares the ready fences that a context can have, except for the one that make_host_engine
// returns with its shared memory. docs/internals/ready-fence.md describes them.
#pragma once

#include <memory>

#include <hvd/core/internal/ready_fence.hpp>

namespace hvd {

class Session;

/// Makes the fence of `make_host_engine` alone, for backends that do not use shared memory. All
/// ranks must be on one host. Collective. `session` outlives the fence. Throws what
/// make_host_engine throws.
[[nodiscard]] std::unique_ptr<ReadyFence> make_host_fence(Session& session);

/// Makes a fence that sends tokens over TCP in ceil(log2 n) rounds (Hensgen, Finkel & Manber 1988),
/// on streams that are opened when first used. Not collective. `session` outlives the fence.
[[nodiscard]] std::unique_ptr<ReadyFence> make_tcp_fence(Session& session);

}  // namespace hvd
