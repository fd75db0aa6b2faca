// Starts hvdrun as users do.
#pragma once

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hvd_test/process.hpp>

namespace hvd::launcher {

/// A generous limit, since busy machines and sanitizers are slow. It only has to detect hangs.
inline constexpr std::chrono::seconds kPatience{90};
/// A limit for hvd_selftest, which takes long without optimisation.
inline constexpr std::chrono::seconds kSelftestPatience{240};

/// HVDRUN is the path of the program under test, set by CMake. OMP_NUM_THREADS is set so that
/// hvdrun prints no notice about it.
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

inline test::ProcessResult run(test::ProcessOptions options,
                               std::chrono::seconds patience = kPatience) {
  return test::run_process(std::move(options), test::in(patience));
}

/// Returns the children of the main thread of a process.
inline std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream list("/proc/" + id + "/task/" + id + "/children");
  return {std::istream_iterator<pid_t>(list), {}};
}

/// Waits until the only agent of a job has no ranks any more; false at the deadline.
inline bool ranks_gone(const test::Process& job, Deadline deadline) {
  const auto agents = children_of(job.pid());
  while (!children_of(agents.at(0)).empty() && Clock::now() < deadline) std::this_thread::yield();
  return children_of(agents.at(0)).empty();
}

}  // namespace hvd::launcher
