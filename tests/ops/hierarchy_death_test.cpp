// Real processes on two hosts of two ranks: one of them dies, or stops, at a named point of an
// operation of all of them or of a process set. Hosts are halves of this machine: shared memory
// within, TCP between.
#include <algorithm>
#include <array>
#include <csignal>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "death/doomed.hpp"
#include "death/fork_rank.hpp"
#include "death/leftovers.hpp"
#include "death/operation.hpp"
#include "hierarchy/hierarchical_backend.hpp"
#include "ring/ring_backend.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

constexpr int kRanks = 4;

struct DeathCase {
  const char* name;
  const char* ways;   // of the hierarchy; null: a ring over all ranks
  const char* ring;   // of the ring
  const char* point;  // where it strikes
  int visit;          // the visit at which it strikes
  int victim;
  OpKind kind = OpKind::allreduce;
  std::string_view members = "0123";  // the ranks of the operation
  std::int64_t count = 250'000;
};

void PrintTo(const DeathCase& one, std::ostream* out) { *out << one.name; }

// 1 MB makes four rounds of two lanes.
constexpr std::array kCases{
    DeathCase{"lanes_reducing", "lanes/262144", "ring", "reducescatter", 3, 3},
    DeathCase{"lanes_crossing", "lanes/262144", "ring", "exchange", 3, 3},
    DeathCase{"lanes_within_a_message", "lanes/262144", "ring", "message", 2, 2},
    DeathCase{"lanes_spreading", "lanes/262144", "ring", "allgather", 2, 2},
    DeathCase{"leaders_reducing", "leaders", "ring", "allreduce", 1, 3},
    DeathCase{"leaders_crossing", "leaders", "ring", "exchange", 2, 2},
    DeathCase{"leaders_doubling", "leaders", "doubling", "exchange", 1, 2},
    DeathCase{"leaders_spreading", "leaders", "ring", "broadcast", 1, 2},
    DeathCase{"doubling_second_turn", nullptr, "doubling", "exchange", 2, 3},
    DeathCase{"ring_reducing", nullptr, "ring", "message", 2, 3},
    DeathCase{"ring_gathering", nullptr, "ring", "exchange", 5, 1},
};

constexpr OpKind kSum = OpKind::allreduce;

// Ranks 0 and 1 of one host, and rank 3 of the other, which owns both lanes.
constexpr std::array kOfSets{
    DeathCase{"lanes_reducing", "lanes/262144", "ring", "reducescatter", 3, 1, kSum, "013"},
    DeathCase{"lanes_crossing", "lanes/262144", "ring", "exchange", 3, 3, kSum, "013"},
    DeathCase{"lanes_within_a_message", "lanes/262144", "ring", "message", 2, 3, kSum, "013"},
    DeathCase{"lanes_spreading", "lanes/262144", "ring", "allgather", 2, 1, kSum, "013"},
    DeathCase{"leaders_reducing", "leaders", "ring", "allreduce", 1, 1, kSum, "013"},
    DeathCase{"leaders_crossing", "leaders", "ring", "exchange", 2, 3, kSum, "013"},
    DeathCase{"leaders_doubling", "leaders", "doubling", "exchange", 1, 3, kSum, "013"},
    DeathCase{"leaders_spreading", "leaders", "ring", "broadcast", 1, 1, kSum, "013"},
    DeathCase{"doubling_second_turn", nullptr, "doubling", "exchange", 2, 3, kSum, "013"},
    DeathCase{"ring_reducing", nullptr, "ring", "message", 2, 3, kSum, "013"},
    DeathCase{"ring_gathering", nullptr, "ring", "exchange", 4, 1, kSum, "013"},
    DeathCase{"one_of_each_host", "lanes/262144", "ring", "message", 1, 3, kSum, "13"},
};

constexpr std::array kOfOperations{
    DeathCase{"lanes_gather_crossing", "lanes", "ring", "exchange", 1, 3, OpKind::allgather},
    DeathCase{"lanes_gather_spreading", "lanes", "ring", "allgather", 1, 2, OpKind::allgather},
    DeathCase{"lanes_scatter_reducing", "lanes", "ring", "reducescatter", 1, 2,
              OpKind::reducescatter},
    DeathCase{"lanes_scatter_crossing", "lanes", "ring", "message", 1, 3, OpKind::reducescatter},
    DeathCase{"ring_gather", nullptr, "ring", "exchange", 2, 3, OpKind::allgather},
    DeathCase{"ring_scatter", nullptr, "ring", "message", 2, 3, OpKind::reducescatter},
    DeathCase{"tree", nullptr, "ring", "exchange", 2, 2, OpKind::broadcast, "0123", 1'000},
    DeathCase{"chain", nullptr, "ring", "exchange", 3, 2, OpKind::broadcast},
    DeathCase{"pairwise", nullptr, "ring", "exchange", 2, 1, OpKind::alltoall},
    DeathCase{"dissemination", nullptr, "ring", "exchange", 2, 3, OpKind::barrier},
};

/// One rank's backends.
class Rank {
 public:
  Rank(const DeathCase& one, int rank, const std::string& store)
      : case_(one), session_(config(rank, store)) {
    auto ring =
        std::make_unique<RingBackend>(make_doomed(make_tcp_transport(session_), doom), hosts_);
    ring->use(AlgorithmTable::parse(one.ring));
    whole_ = one.ways ? hierarchy(std::move(ring), rank) : std::move(ring);
    std::vector<int> members;
    for (const char digit : one.members) members.push_back(digit - '0');
    if (std::ssize(members) == kRanks) return;
    if (std::find(members.begin(), members.end(), rank) == members.end()) {
      member_ = false;
    } else {
      set_ = whole_->subset(members, soon());
    }
  }

  /// Runs the operation if this rank is one of its members.
  void operate(Deadline deadline) {
    if (!member_) return;
    run_operation(case_.kind, set_ ? *set_ : *whole_, case_.count,
                  static_cast<int>(std::ssize(case_.members)), deadline);
  }

  /// Sums over all ranks.
  void sum(Deadline deadline) {
    std::vector<float> data(1'000, 1);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{bytes, bytes, std::ssize(data)};
    whole_->allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, deadline);
    if (data.front() != kRanks || data.back() != kRanks) throw Error(Errc::internal, "wrong");
  }

  Doom doom;

 private:
  static Config config(int rank, const std::string& store) {
    Config config = thread_config(rank, kRanks);
    config.rendezvous = Rendezvous::store;
    config.store_address = store;
    config.arena_size = std::size_t{16} << 20;
    return config;
  }

  std::unique_ptr<Backend> hierarchy(std::unique_ptr<Backend> ring, int rank) {
    Topology topology;
    topology.rank = rank;
    topology.size = kRanks;
    topology.host_of = hosts_;
    engine_ = make_host_engine(session_);
    const int first = rank / 2 * 2;
    auto host = engine_.backend->subset(std::vector<int>{first, first + 1}, soon());
    auto hosts =
        compose_hierarchy(std::move(ring), make_doomed(std::move(host), doom), topology, soon());
    hosts->use(AlgorithmTable::parse(case_.ways));
    return hosts;
  }

  const std::vector<int> hosts_{0, 0, 1, 1};
  const DeathCase& case_;
  Session session_;
  HostEngine engine_;
  std::unique_ptr<Backend> whole_;
  std::unique_ptr<Backend> set_;
  bool member_ = true;
};

using Parameter = std::tuple<DeathCase, int>;

/// The victim ends here. Another rank returns its error.
Error fail_at(const Parameter& parameter, int rank, const std::string& store) {
  const auto& [one, fate] = parameter;
  Rank self(one, rank, store);
  self.operate(soon());
  self.sum(soon());
  if (rank == one.victim) self.doom.arm(one.point, one.visit, fate);
  const Deadline deadline = fate == SIGKILL ? soon() : Clock::now() + std::chrono::seconds(1);
  // A rank that already has all data when the victim dies notices the loss in the next operation of
  // all.
  const Error error = error_of([&] {
    self.operate(deadline);
    self.sum(deadline);
  });
  const Error again = error_of([&] { self.sum(deadline); });
  return again.code() == error.code() ? error : again;  // the first sticks
}

bool is_expected(const Error& error, int fate) {
  return error.code() == Errc::peer_lost || (fate == SIGSTOP && error.code() == Errc::timeout);
}

class HierarchyDeath : public testing::TestWithParam<Parameter> {};

TEST_P(HierarchyDeath, IsATypedErrorOnEveryRankInTime) {
  const auto& [one, fate] = GetParam();
  const std::string store =
      fmt::format("unix:@hvd-test-hosts-{}-{}-{}-{}", ::getpid(), one.name, one.members, fate);
  const std::ptrdiff_t descriptors = entries("/proc/self/fd");
  std::array<pid_t, kRanks> children{};
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t child = fork_rank(
        [&, fate = fate] { return is_expected(fail_at(GetParam(), rank, store), fate) ? 0 : 1; });
    ASSERT_GE(child, 0);
    children[static_cast<std::size_t>(rank)] = child;
  }
  const auto began = Clock::now();
  {
    EventLoop loop;
    const StoreServer server(loop, store,
                             {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}});
    const Error error = fail_at(GetParam(), 0, store);
    EXPECT_TRUE(is_expected(error, fate)) << error.what();
  }
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t child = children[static_cast<std::size_t>(rank)];
    if (rank == one.victim) ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const bool as_planned = rank == one.victim ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                               : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(as_planned) << "rank " << rank << ": " << status;
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(25));
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(own_threads(), 0);
}

std::string name_of_case(const testing::TestParamInfo<Parameter>& info) {
  return std::string(std::get<0>(info.param).name) +
         (std::get<1>(info.param) == SIGKILL ? "_killed" : "_stopped");
}

const auto kFates = testing::Values(SIGKILL, SIGSTOP);
INSTANTIATE_TEST_SUITE_P(Points, HierarchyDeath,
                         testing::Combine(testing::ValuesIn(kCases), kFates), name_of_case);
INSTANTIATE_TEST_SUITE_P(OfSets, HierarchyDeath,
                         testing::Combine(testing::ValuesIn(kOfSets), kFates), name_of_case);
INSTANTIATE_TEST_SUITE_P(OfOperations, HierarchyDeath,
                         testing::Combine(testing::ValuesIn(kOfOperations), kFates), name_of_case);

}  // namespace
}  // namespace hvd::test
