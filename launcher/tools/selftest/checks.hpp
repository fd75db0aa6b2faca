// Checks every operation with data whose result is known.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

namespace hvd::selftest {

struct Check {
  std::string name;  ///< "allreduce sum f32"
  /// Collective. Returns the number of wrong elements on this rank.
  std::function<std::int64_t(Context&)> run;
};

[[nodiscard]] std::vector<Check> all_checks();

}  // namespace hvd::selftest
