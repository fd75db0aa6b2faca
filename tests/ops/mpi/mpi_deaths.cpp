#include "mpi_deaths.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <unistd.h>

#include <hvd/ops/internal/backends.hpp>

#include "death/doomed.hpp"
#include "death/operation.hpp"
#include "mpi/mpi_backend.hpp"
#include "mpi/mpi_transport.hpp"
#include "mpi_words.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::seconds;

Doom& doom() {
  static Doom instance;
  return instance;
}

/// A point of an operation, and the visit at which the process is struck.
struct Death {
  OpKind kind = OpKind::allreduce;
  std::int64_t count = 300'000;
  std::string_view point;
  int visit = 1;
};

/// Returns whether the point is in the ring over MPI's messages, and not in MPI's own operations.
bool of_ring(DeathPoint point) {
  return point == DeathPoint::messages || point == DeathPoint::carrying;
}

Death death_of(DeathPoint point, std::size_t pair) {
  constexpr std::array kKinds{OpKind::allreduce,     OpKind::allgather, OpKind::broadcast,
                              OpKind::reducescatter, OpKind::alltoall,  OpKind::barrier};
  constexpr std::array kMessages{Death{.point = "exchange", .visit = 2},
                                 Death{.point = "message", .visit = 2},
                                 Death{.count = 100, .point = "exchange"}};
  // With two ranks each operation is one exchange, except for the segments of a chain.
  constexpr std::array kCarrying{
      Death{.kind = OpKind::allgather, .point = "exchange"},
      Death{.kind = OpKind::broadcast, .point = "exchange", .visit = 3},
      Death{.kind = OpKind::reducescatter, .point = "exchange"},
      Death{.kind = OpKind::reducescatter, .point = "message", .visit = 2},
      Death{.kind = OpKind::alltoall, .point = "exchange"},
      Death{.kind = OpKind::barrier, .point = "exchange"}};
  if (point == DeathPoint::messages) return kMessages.at(pair);
  if (point == DeathPoint::carrying) return kCarrying.at(pair);
  const OpKind kind = kKinds.at(pair);
  return {.kind = kind, .point = point == DeathPoint::waiting ? "MPI_Test" : to_string(kind)};
}

std::unique_ptr<Backend> make_backend(DeathPoint point, std::shared_ptr<MpiUse> use,
                                      MPI_Comm pair) {
  const std::atomic<bool> never{false};
  Watch watch(in(seconds(20)), never, "init", "MPI");
  auto comm = std::make_shared<const MpiComm>(pair, watch);
  if (!of_ring(point)) {
    return make_doomed(std::make_unique<MpiBackend>(std::move(use), std::move(comm)), doom());
  }
  auto transport = std::make_unique<MpiTransport>(std::move(use), std::move(comm));
  return make_ring_backend(make_doomed(std::move(transport), doom()));
}

}  // namespace

void peers_end_at(DeathPoint point, int signal) {
  const auto use = std::make_shared<MpiUse>();
  const int rank = rank_of_world();
  const bool ends = rank % 2 == 1;
  MPI_Comm pair = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
  const auto backend = make_backend(point, use, pair);
  const Death death = death_of(point, static_cast<std::size_t>(rank / 2));
  int victim = ::getpid();
  MPI_Bcast(&victim, 1, MPI_INT, 1, pair);
  // Tells a rank that hangs later from an MPI that does not start.
  std::printf("rank %d has met its peer\n", rank);
  std::fflush(stdout);
  const auto operate = [&](Deadline deadline) {
    run_operation(death.kind, *backend, death.count, 2, deadline);
  };
  operate(in(seconds(20)));
  if (ends) {
    doom().arm(death.point, death.visit, signal);
    say("lives on: " + outcome([&] { operate(in(seconds(10))); }));
    return;
  }
  // A ring reaches its points only while both ranks continue.
  const Deadline deadline = in(seconds(of_ring(point) ? 2 : 1));
  const std::string end = outcome([&] {
    for (;;) operate(deadline);  // a rank with all data notices in the next
  });
  // An MPI without a core for every rank is slow at times, so this limit only tells from a hang.
  const bool late = Clock::now() > deadline + seconds(15);
  say(std::string(to_string(death.kind)) + " at " + std::string(death.point) +
      (late ? " too late: " : " in time: ") + end);
  if (signal == SIGSTOP) ::kill(victim, SIGKILL);  // mpirun waits for frozen ranks too
}

}  // namespace hvd::test

/// Is found before libmpi's function, and calls it.
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  hvd::test::doom().visit("MPI_Test");
  return PMPI_Test(request, flag, status);
}
