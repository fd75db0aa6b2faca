// Replaces transports.cpp: each rank is a process that mpirun started, and runs only its own body
// over MPI's transport.
#include <algorithm>
#include <cstdlib>

#include "mpi_ways.hpp"
#include "transports.hpp"

namespace hvd::test {

std::string_view to_string(Kind) { return "mpi"; }

Deadline soon() { return Clock::now() + std::chrono::seconds(30); }

std::vector<std::exception_ptr> run_ranks(Kind, int size, const RankBody& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  const int rank = world_rank();
  try {
    // Uses many segments, whose length differs from the period of the suite's data and cuts
    // elements of 16 bytes.
    body(rank, make_transport({.segment = 5'000}));
  } catch (...) {
    errors[static_cast<std::size_t>(rank)] = std::current_exception();
  }
  return errors;
}

void expect_ranks(Kind kind, int size, const RankBody& body) {
  for (const auto& error : run_ranks(kind, size, body)) {
    if (error) std::rethrow_exception(error);
  }
}

namespace {

/// Initialises MPI as a program that uses it itself would. Then hvd never passes callers' memory to
/// MPI.
class ProgramsMpi : public testing::Environment {
 public:
  ProgramsMpi() { MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_); }
  void TearDown() override { MPI_Finalize(); }

 private:
  int level_ = MPI_THREAD_SINGLE;
};

void let_program_initialise() {
  static const bool wanted = std::getenv("HVD_TEST_PROGRAM_MPI") != nullptr;
  static auto* const once =
      wanted ? testing::AddGlobalTestEnvironment(new ProgramsMpi) : nullptr;  // GoogleTest's
  static_cast<void>(once);
}

}  // namespace

/// Returns the parameters for the number of ranks that mpirun started.
std::vector<std::tuple<Kind, int>> transport_parameters(const std::vector<int>& sizes) {
  let_program_initialise();
  static_cast<void>(detail::MpiUse());  // the number is MPI's to tell, once initialised
  const int size = world_size();
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) return {};
  return {{Kind::mpi, size}};
}

std::string parameter_name(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  return "mpi_" + std::to_string(std::get<1>(info.param));
}

}  // namespace hvd::test
