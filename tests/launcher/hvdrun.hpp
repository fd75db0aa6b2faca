// hvdrun as its user starts it.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <hvd_test/process.hpp>

namespace hvd::launcher {

/// Generous: a loaded machine and sanitizers make everything slow; a hang is what it is for.
inline constexpr std::chrono::seconds kPatience{30};

/// HVDRUN is the path of the program under test, given by CMake. With OMP_NUM_THREADS set, hvdrun
/// has nothing to say about it.
inline test::ProcessOptions hvdrun(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HVDRUN);
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  return options;
}

/// `hvdrun -np N options sh -c script`.
inline test::ProcessOptions hvdrun_script(int ranks, const std::string& script,
                                          const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"sh", "-c", script});
  return hvdrun(std::move(arguments));
}

inline test::ProcessResult run(test::ProcessOptions options) {
  return test::run_process(std::move(options), test::in(kPatience));
}

}  // namespace hvd::launcher
