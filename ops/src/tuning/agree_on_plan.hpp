// Lets all ranks agree on one plan, which says which algorithm is used for which size.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tuning/algorithm_plan.hpp"

namespace hvd {
class Session;
}

namespace hvd::detail {

struct PlanQuestion {
  std::string_view engine;  ///< each engine asks once
  AlgorithmPlan defaults;   ///< has all parts of the engine
  std::function<AlgorithmPlan()> measure;
};

/// Returns rank 0's plan on all ranks: the one in `Config::plan`; or the one in its plan file for
/// this engine and topology; or a measured one, which is then saved in that file. All ranks call
/// `measure` together. Collective. Throws Errc::invalid_argument on every rank when rank 0's
/// setting is malformed. A file that cannot be used causes a warning and a measurement.
[[nodiscard]] AlgorithmPlan agree_on_plan(Session& session, const PlanQuestion& question);

/// Describes what a measured plan holds for, without blanks: engine, ranks by host and streams, as
/// in "tcp/2+2/streams=4". Where the hosts of the ranks are not ascending they are listed, as in
/// "tcp/2+2/order=0,1,0,1/streams=4".
[[nodiscard]] std::string plan_signature(std::string_view engine, std::span<const int> host_of,
                                         int streams);

}  // namespace hvd::detail
