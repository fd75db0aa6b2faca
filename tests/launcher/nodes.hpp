// For jobs whose nodes are hvdruns of their own.
#pragma once

#include <random>
#include <string>

#include "hvdrun.hpp"

namespace hvd::launcher {

/// Jobs that run at the same time, of this test and of others, do not meet.
inline std::string fresh_port() {
  static std::mt19937 random(std::random_device{}());
  return std::to_string(std::uniform_int_distribution<int>(20'000, 32'000)(random));
}

inline test::ProcessResult wait(test::Process& process) {
  return process.wait(test::in(kPatience));
}

}  // namespace hvd::launcher
