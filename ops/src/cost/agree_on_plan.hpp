// One plan for all ranks.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "cost/plan.hpp"

namespace hvd {

class Session;

struct PlanQuestion {
  std::string_view engine;  ///< one question for each
  Plan defaults;            ///< all of its parts
  std::function<Plan()> measure;
};

/// Rank 0 answers, and all ranks get its answer: what `Config::plan` says; or what its plan file
/// has for this engine and topology; or what it measures, which then goes into the file. All ranks
/// are in `measure` together. Collective. Throws Errc::invalid_argument on every rank when rank 0's
/// setting makes no sense; a file that cannot be used is warned of and measured instead.
[[nodiscard]] Plan agree_on_plan(Session& session, const PlanQuestion& question);

/// What a measured plan holds for: "tcp/2+2/streams=4" for an engine, ranks by host and streams, or
/// "tcp/2+2/order=0,1,0,1/streams=4" with the host of each rank where these do not follow each
/// other.
[[nodiscard]] std::string plan_signature(std::string_view engine, std::span<const int> host_of,
                                         int streams);

}  // namespace hvd
