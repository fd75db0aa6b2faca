// Ways to meet before an operation of a frozen schedule. docs/arrivals.md.
#pragma once

#include <memory>
#include <vector>

#include <hvd/core/arrivals.hpp>

namespace hvd {

class Session;

/// A line of shared memory per rank, which only that rank can write. Every rank on one host; throws
/// Errc::unsupported where they are not. Collective. `session` outlives it.
[[nodiscard]] std::unique_ptr<Arrivals> make_shm_arrivals(Session& session);

/// Tokens over TCP in ceil(log2 n) rounds (Hensgen, Finkel & Manber 1988), on streams that are
/// opened when first used. Not collective. `session` outlives it.
[[nodiscard]] std::unique_ptr<Arrivals> make_tcp_arrivals(Session& session);

/// `size` ranks that meet inside this process, one per rank.
[[nodiscard]] std::vector<std::unique_ptr<Arrivals>> make_in_process_arrivals(int size);

}  // namespace hvd
