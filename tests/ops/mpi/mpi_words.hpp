// Prints what mpi_life_test checks of a rank.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include <mpi.h>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd::test {

[[nodiscard]] inline Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

[[nodiscard]] inline int rank_of_world() {
  int value = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}

inline void say(const std::string& what) {
  std::printf("[%d] %s\n", rank_of_world(), what.c_str());
  std::fflush(stdout);
}

/// Returns "ok", or the code of the error, the rank that it blames and its text.
[[nodiscard]] inline std::string outcome(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const int blamed = error.fault().rank;
    return std::string(to_string(error.code())) +
           (blamed < 0 ? "" : " of rank " + std::to_string(blamed)) + ": " + error.what();
  }
  return "ok";
}

}  // namespace hvd::test
