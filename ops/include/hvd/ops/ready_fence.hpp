// The ready fences that a context can have; that of ranks which share memory comes with
// make_host_engine. docs/internals/ready-fence.md.
#pragma once

#include <memory>

#include <hvd/core/ready_fence.hpp>

namespace hvd {

class Session;

/// The fence of `make_host_engine` alone, for backends that do not use shared memory. Every rank on
/// one host. Collective. `session` outlives it. Throws as make_host_engine does.
[[nodiscard]] std::unique_ptr<ReadyFence> make_host_fence(Session& session);

/// Tokens over TCP in ceil(log2 n) rounds (Hensgen, Finkel & Manber 1988), on streams that are
/// opened when first used. Not collective. `session` outlives it.
[[nodiscard]] std::unique_ptr<ReadyFence> make_tcp_fence(Session& session);

}  // namespace hvd
