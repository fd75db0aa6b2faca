// What hvdrun says at the end of a job that did not succeed.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "job_policy.hpp"
#include "tail.hpp"

namespace hvd::launcher {

/// Where a rank ran.
struct RankPlace {
  std::string host;
  int local_rank = 0;
  int pid = 0;  ///< 0: unknown
};

/// "rank 2 on b (local 0, pid 123) exited 7 after 3.2 s"
[[nodiscard]] std::string describe(const RankEnd& end, const RankPlace& place);

/// Whole lines, each with "hvdrun: " in front but for the culprit's own; empty after success.
[[nodiscard]] std::string report(const Outcome& outcome,
                                 const std::function<RankPlace(int rank)>& place,
                                 const std::function<std::deque<Tail::Line>(int rank)>& tail);

/// For a job over several hosts: a line that suggests --network-interfaces when `tail`, the
/// culprit's last lines, looks as if ranks could not connect; else empty.
[[nodiscard]] std::string network_hint(const std::deque<Tail::Line>& tail);

}  // namespace hvd::launcher
