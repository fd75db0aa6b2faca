// Formats the text that rank 0 prints. The functions have no side effects.
#pragma once

#include <string>
#include <vector>

#include "advice.hpp"
#include "rates.hpp"

namespace hvd::selftest {

struct CheckResult {
  std::string name;
  long wrong = 0;  ///< the number of wrong elements, on all ranks together
};

struct EngineResult {
  std::string name;
  bool available = true;
  std::vector<CheckResult> checks;
  AllreduceRate rate;
};

[[nodiscard]] bool passed(const EngineResult& result);

/// Returns a line such as "4 ranks on 2 hosts: a (2), b (2)".
[[nodiscard]] std::string heading(const Findings& findings);
/// Returns a line for the engine and one for each check with wrong results, or for every check if
/// `verbose`.
[[nodiscard]] std::string table(const EngineResult& result, bool verbose);
/// Returns a line for each pair of ranks, below a heading.
[[nodiscard]] std::string table(const Findings& findings);

}  // namespace hvd::selftest
