// Helpers for jobs in which every node has its own hvdrun.
#pragma once

#include <random>
#include <string>

#include "hvdrun.hpp"

namespace hvd::launcher {

/// Returns a port that no other job of this or another test uses at the same time.
inline std::string fresh_port() {
  static std::mt19937 random(std::random_device{}());
  return std::to_string(std::uniform_int_distribution<int>(20'000, 32'000)(random));
}

inline test::ProcessResult wait(test::Process& process) {
  return process.wait(test::in(kPatience));
}

}  // namespace hvd::launcher
