// Real processes on two hosts of two ranks: one of them dies, or stops, at a named point of an
// allreduce. Hosts are halves of this machine: shared memory within, TCP between.
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <istream>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/session.hpp>
#include <hvd/core/store.hpp>
#include <hvd/ops/backends.hpp>

#include "hierarchy/hierarchical_backend.hpp"
#include "ring/ring_backend.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

constexpr int kRanks = 4;

struct DeathCase {
  const char* name;
  const char* ways;   // of the hierarchy; null: a ring over all ranks
  const char* ring;   // of the ring
  const char* point;  // where it strikes
  int visit;          // the how manieth time it comes there
  int victim;
};

void PrintTo(const DeathCase& one, std::ostream* out) { *out << one.name; }

// 1 MB are four rounds of two lanes.
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

/// Strikes the process that it is armed in.
class Doom {
 public:
  void arm(const char* point, int visit, int signal) {
    point_ = point;
    left_ = visit;
    signal_ = signal;
  }
  void visit(std::string_view point) {
    if (point == point_ && --left_ == 0) ::raise(signal_);
  }

 private:
  std::string_view point_;
  int left_ = 0;
  int signal_ = SIGKILL;
};

class DoomedTransport final : public Transport {
 public:
  DoomedTransport(std::unique_ptr<Transport> inner, Doom& doom)
      : inner_(std::move(inner)), doom_(doom) {}
  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    doom_.visit("exchange");
    Incoming doomed = in;
    if (in.sink) {
      doomed.sink = [&](std::size_t offset, std::span<const std::byte> bytes) {
        doom_.visit("message");
        in.sink(offset, bytes);
      };
    }
    inner_->exchange(out, doomed, deadline);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<Transport> inner_;
  Doom& doom_;
};

/// Within a host.
class DoomedBackend final : public Backend {
 public:
  DoomedBackend(std::unique_ptr<Backend> inner, Doom& doom)
      : inner_(std::move(inner)), doom_(doom) {}
  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override {
    return inner_->supports(kind, device, dtype, op);
  }
  void allreduce(const AllreduceCall& call, Deadline deadline) override {
    doom_.visit("allreduce");
    inner_->allreduce(call, deadline);
  }
  void allgather(const AllgatherCall& call, Deadline deadline) override {
    doom_.visit("allgather");
    inner_->allgather(call, deadline);
  }
  void broadcast(const BroadcastCall& call, Deadline deadline) override {
    doom_.visit("broadcast");
    inner_->broadcast(call, deadline);
  }
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override {
    doom_.visit("reducescatter");
    inner_->reducescatter(call, deadline);
  }
  void alltoall(const AlltoallCall& call, Deadline deadline) override {
    inner_->alltoall(call, deadline);
  }
  void barrier(Deadline deadline) override { inner_->barrier(deadline); }
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override {
    return inner_->subset(ranks, deadline);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<Backend> inner_;
  Doom& doom_;
};

/// One rank's backends.
class Rank {
 public:
  Rank(const DeathCase& one, int rank, const std::string& store) : session_(config(rank, store)) {
    auto ring = std::make_unique<RingBackend>(
        std::make_unique<DoomedTransport>(make_tcp_transport(session_), doom));
    ring->use(Ways::parse(one.ring));
    if (!one.ways) {
      backend_ = std::move(ring);
      return;
    }
    Topology topology;
    topology.rank = rank;
    topology.size = kRanks;
    topology.host_of = {0, 0, 1, 1};
    engine_ = make_host_engine(session_);
    const int first = rank / 2 * 2;
    auto host = engine_.backend->subset(std::vector<int>{first, first + 1}, soon());
    auto hosts = compose_hierarchy(
        std::move(ring), std::make_unique<DoomedBackend>(std::move(host), doom), topology, soon());
    hosts->use(Ways::parse(one.ways));
    backend_ = std::move(hosts);
  }

  void sum(Deadline deadline) {
    std::vector<float> data(250'000, 1);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{bytes, bytes, std::ssize(data)};
    backend_->allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, deadline);
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

  Session session_;
  HostEngine engine_;
  std::unique_ptr<Backend> backend_;
};

using Parameter = std::tuple<DeathCase, int>;

/// The victim ends here; another rank returns how its sums failed.
Error fail_at(const Parameter& parameter, int rank, const std::string& store) {
  const auto& [one, fate] = parameter;
  Rank self(one, rank, store);
  self.sum(soon());
  if (rank == one.victim) self.doom.arm(one.point, one.visit, fate);
  const Deadline deadline = fate == SIGKILL ? soon() : Clock::now() + std::chrono::seconds(1);
  // A rank that has all it needs before the victim falls notices in the next one.
  const Error error = error_of([&] {
    for (int i = 0; i < 2; ++i) self.sum(deadline);
  });
  const Error again = error_of([&] { self.sum(deadline); });
  return again.code() == error.code() ? error : again;  // the first sticks
}

bool is_expected(const Error& error, int fate) {
  return error.code() == Errc::peer_lost || (fate == SIGSTOP && error.code() == Errc::timeout);
}

std::ptrdiff_t entries(const char* folder) {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries(folder), Entries());
}

/// Of the library, which names its threads; sanitizers have some too.
int own_threads() {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    found += name.rfind("hvd-", 0) == 0;
  }
  return found;
}

class HierarchyDeath : public testing::TestWithParam<Parameter> {};

TEST_P(HierarchyDeath, IsATypedErrorOnEveryRankInTime) {
  const auto& [one, fate] = GetParam();
  const std::string store =
      fmt::format("unix:@hvd-test-hosts-{}-{}-{}", ::getpid(), one.name, fate);
  const std::ptrdiff_t descriptors = entries("/proc/self/fd");
  std::array<pid_t, kRanks> children{};
  for (int rank = 1; rank < kRanks; ++rank) {  // before this process has threads
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) std::_Exit(is_expected(fail_at(GetParam(), rank, store), fate) ? 0 : 1);
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

INSTANTIATE_TEST_SUITE_P(Points, HierarchyDeath,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of_case);

}  // namespace
}  // namespace hvd::test
