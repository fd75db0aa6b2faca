// Named cases, each of which every rank runs.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "../job.hpp"

namespace hvd::test {

struct NamedCase {
  std::string name;
  std::function<void(const Member&)> body;

  friend void PrintTo(const NamedCase& that, std::ostream* out) { *out << that.name; }
};

std::vector<NamedCase> collective_cases();
std::vector<NamedCase> sparse_cases();
std::vector<NamedCase> error_cases();
std::vector<NamedCase> join_cases();

}  // namespace hvd::test
