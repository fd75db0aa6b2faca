// Writes hvdrun's report on a job that did not succeed.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "supervise/job_policy.hpp"
#include "supervise/rank_output.hpp"

namespace hvd::launcher {

/// The host and process of a rank.
struct RankLocation {
  std::string host;
  int local_rank = 0;
  int pid = 0;  ///< 0: unknown
};

/// Returns text such as "rank 2 on b (local 0, pid 123) exited 7 after 3.2 s".
[[nodiscard]] std::string describe(const RankEnd& end, const RankLocation& place);

/// Returns whole lines, each with "hvdrun: " in front except those that the culprit wrote. The text
/// is empty after success.
[[nodiscard]] std::string report(const Outcome& outcome,
                                 const std::function<RankLocation(int rank)>& place,
                                 const std::function<std::deque<Tail::Line>(int rank)>& tail);

/// Returns the rank whose last lines the report quotes, for an outcome with a culprit. A culprit
/// that exited 0 without a shutdown has no error to show, so a rank that failed after it is quoted.
[[nodiscard]] int quoted_rank(const Outcome& outcome);

/// Returns a line that suggests --network-interfaces, when a job on several hosts failed and
/// `tail`, the culprit's last lines, suggests that ranks could not connect. Otherwise returns an
/// empty text.
[[nodiscard]] std::string network_hint(const std::deque<Tail::Line>& tail);

}  // namespace hvd::launcher
