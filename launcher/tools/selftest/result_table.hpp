// What rank 0 prints. Pure.
#pragma once

#include <string>
#include <vector>

#include "advice.hpp"
#include "rates.hpp"

namespace hvd::selftest {

struct CheckResult {
  std::string name;
  long wrong = 0;  ///< elements, on all ranks together
};

struct EngineResult {
  std::string name;
  bool available = true;
  std::vector<CheckResult> checks;
  AllreduceRate rate;
};

[[nodiscard]] bool passed(const EngineResult& result);

/// "4 ranks on 2 hosts: a (2), b (2)"
[[nodiscard]] std::string heading(const Findings& findings);
/// A line for the engine; `verbose`: and one for every check. Wrong results always have theirs.
[[nodiscard]] std::string table(const EngineResult& result, bool verbose);
/// A line per pair of ranks.
[[nodiscard]] std::string table(const Findings& findings);

}  // namespace hvd::selftest
