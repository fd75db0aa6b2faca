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
  int pid = 0;
};

/// "rank 2 on b (local 0, pid 123) exited 7 after 3.2 s"
[[nodiscard]] std::string describe(const RankEnd& end, const RankPlace& place);

/// Whole lines, each with "hvdrun: " in front but for the culprit's own; empty after success.
[[nodiscard]] std::string report(const Outcome& outcome,
                                 const std::function<RankPlace(int rank)>& place,
                                 const std::function<std::deque<Tail::Line>(int rank)>& tail);

}  // namespace hvd::launcher
