// One rank of mpi_life_test: plays the scenario that argv[1] names and prints what came of it.
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mpi/mpi_backend.hpp"

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

hvd::Deadline in(milliseconds time) { return hvd::Clock::now() + time; }

std::unique_ptr<hvd::MpiBackend> make_backend() {
  return std::make_unique<hvd::MpiBackend>(std::make_unique<hvd::MpiUse>(), MPI_COMM_WORLD,
                                           in(seconds(20)));
}

int rank() {
  int value = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}

void say(const std::string& what) {
  std::printf("[%d] %s\n", rank(), what.c_str());
  std::fflush(stdout);
}

/// "ok", or the code of the error and its text.
std::string outcome(const std::function<void()>& call) {
  try {
    call();
  } catch (const hvd::Error& error) {
    return std::string(hvd::to_string(error.code())) + ": " + error.what();
  }
  return "ok";
}

void twice() {
  for (int i = 0; i < 2; ++i) {
    const auto backend = make_backend();
    say(outcome([&] { backend->barrier(in(seconds(20))); }));
  }
}

/// Lives until after the exit handlers that MPI's first use registers.
std::unique_ptr<hvd::MpiBackend>& kept() {
  static std::unique_ptr<hvd::MpiBackend> backend;
  return backend;
}

void keep_until_exit() {
  auto& backend = kept();  // first, so that it is destroyed last
  backend = make_backend();
  say(outcome([] { kept()->barrier(in(seconds(20))); }));
}

/// Rank 1 comes to no barrier before rank 0 has given up, and both go without MPI_Finalize.
void timeout() {
  const auto backend = make_backend();
  if (rank() == 0) {
    say(outcome([&] { backend->barrier(in(milliseconds(100))); }));
    say("again " + outcome([&] { backend->barrier(in(seconds(20))); }));
    say("new " + outcome([] { static_cast<void>(make_backend()); }));
  }
}

/// As `timeout`, of what MPI itself could not give up.
void lonely_subset() {
  const auto backend = make_backend();
  if (rank() == 0) {
    const std::vector<int> both{0, 1};
    say(outcome([&] { static_cast<void>(backend->subset(both, in(milliseconds(100)))); }));
    say("whole " + outcome([&] { backend->barrier(in(seconds(20))); }));
  }
}

void abort_from_another_thread() {
  const auto backend = make_backend();
  if (rank() == 0) {
    std::thread aborter([&] { backend->abort(); });
    say(outcome([&] { backend->barrier(in(seconds(20))); }));
    aborter.join();
  }
}

void program_initialises(int level) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  say(outcome([] { make_backend()->barrier(in(seconds(20))); }));
  MPI_Finalize();
  std::puts(("after " + outcome([] { static_cast<void>(make_backend()); })).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {
      {"twice", twice},
      {"keep", keep_until_exit},
      {"timeout", timeout},
      {"subset", lonely_subset},
      {"abort", abort_from_another_thread},
      {"program-funneled", [] { program_initialises(MPI_THREAD_FUNNELED); }},
      {"program-multiple", [] { program_initialises(MPI_THREAD_MULTIPLE); }},
  };
  const auto found = argc == 2 ? scenarios.find(argv[1]) : scenarios.end();
  if (found == scenarios.end()) return 64;
  found->second();
  return 0;
}
