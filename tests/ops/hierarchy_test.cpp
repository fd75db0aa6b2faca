// Tests allreduce over hosts with several ranks each. Hosts are groups of threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/internal/backend.hpp>
#include <hvd/core/topology.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "hierarchy/comm_thread.hpp"
#include "hierarchy/hierarchical_backend.hpp"
#include "hierarchy/lanes.hpp"
#include "hierarchy/rounds.hpp"
#include "ring/ring_backend.hpp"
#include "support/backend_checks.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using testing::ElementsAre;

/// Takes the ranks per host and returns the host of each rank.
std::vector<int> in_order(const std::vector<int>& slots) {
  std::vector<int> host_of;
  for (std::size_t host = 0; host < slots.size(); ++host) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(slots[host]), static_cast<int>(host));
  }
  return host_of;
}

TEST(Lanes, EqualHostsHaveOneLaneEachRank) {
  const Lanes lanes = plan_lanes(in_order({2, 2}), 3);
  EXPECT_EQ(lanes.count, 2);
  EXPECT_THAT(lanes.host, ElementsAre(2, 3));
  EXPECT_EQ(lanes.local_rank, 1);
  EXPECT_THAT(lanes.begin, ElementsAre(0, 1, 2));
  EXPECT_THAT(lanes.owners, ElementsAre(ElementsAre(1, 3)));
}

TEST(Lanes, ALoneRankCarriesAllLanesOfItsHost) {
  const std::vector<int> hosts = in_order({3, 1});
  EXPECT_THAT(plan_lanes(hosts, 3).owners,
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 3), ElementsAre(2, 3)));
  EXPECT_THAT(plan_lanes(hosts, 1).owners, ElementsAre(ElementsAre(1, 3)));
}

TEST(Lanes, OwnersAreAscendingWhereRanksAlternateBetweenHosts) {
  const std::vector<int> hosts{0, 1, 1, 0};
  EXPECT_THAT(plan_lanes(hosts, 3).owners, ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(plan_lanes(hosts, 0).owners, ElementsAre(ElementsAre(0, 1)));
}

TEST(Lanes, EveryLaneHasOneOwnerOnEveryHostAndAllAgree) {
  for (const auto& slots : {std::vector{3, 2}, {5, 3, 1}, {1, 4}, {2, 2, 2}, {7, 4}}) {
    const std::vector<int> hosts = in_order(slots);
    std::vector<std::vector<std::vector<int>>> views;  // by lane: what its owners think
    for (int rank = 0; rank < std::ssize(hosts); ++rank) {
      const Lanes lanes = plan_lanes(hosts, rank);
      views.resize(static_cast<std::size_t>(lanes.count));
      for (std::size_t n = 0; n < lanes.owners.size(); ++n) {
        views[static_cast<std::size_t>(lanes.first()) + n].push_back(lanes.owners[n]);
      }
    }
    for (const auto& view : views) {
      ASSERT_EQ(view.size(), slots.size());
      EXPECT_THAT(view, testing::Each(view.front()));
    }
  }
}

TEST(Lanes, TheHostsOfSomeRanksAreNumberedAnew) {
  const std::vector<int> hosts{0, 1, 2, 1, 0};
  EXPECT_THAT(hosts_among(hosts, std::vector{1, 3, 4}), ElementsAre(0, 0, 1));
  EXPECT_THAT(hosts_among(hosts, std::vector{2}), ElementsAre(0));
}

TEST(Lanes, OffsetsCoverATensorOfAnySize) {
  Lanes lanes;
  lanes.count = 3;
  for (const std::int64_t elements : {0L, 1L, 2L, 7L, (1L << 62) + 1}) {
    EXPECT_EQ(lanes.offset(elements, 0), 0);
    EXPECT_EQ(lanes.offset(elements, 3), elements);
    EXPECT_LE(lanes.offset(elements, 1), lanes.offset(elements, 2));
  }
}

/// Counts the bytes that leave a host and those that stay.
class Meter final : public Transport {
 public:
  Meter(std::unique_ptr<Transport> inner, const std::vector<int>& host_of,
        std::vector<std::atomic<std::int64_t>>& sent,
        std::vector<std::atomic<std::int64_t>>& stayed)
      : inner_(std::move(inner)), host_of_(host_of), sent_(sent), stayed_(stayed) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    const int here = host(rank());
    if (out.peer >= 0) {
      const bool leaves = host(out.peer) != here;
      (leaves ? sent_ : stayed_)[static_cast<std::size_t>(here)] += std::ssize(out.bytes);
    }
    inner_->exchange(out, in, deadline);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  [[nodiscard]] int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<Transport> inner_;
  const std::vector<int>& host_of_;
  std::vector<std::atomic<std::int64_t>>& sent_;    // by host
  std::vector<std::atomic<std::int64_t>>& stayed_;  // by host
};

TensorSlice of(std::int64_t count) { return {nullptr, nullptr, count}; }

TEST(Rounds, ATensorIsCutByItsOwnCount) {
  const std::vector<TensorSlice> tensors{of(10)};
  EXPECT_THAT(plan_rounds(tensors, 4),
              ElementsAre(ElementsAre(Segment{0, 0, 3}), ElementsAre(Segment{0, 3, 3}),
                          ElementsAre(Segment{0, 6, 4})));
  for (const std::int64_t most : {std::int64_t{10}, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THAT(plan_rounds(tensors, most), ElementsAre(ElementsAre(Segment{0, 0, 10})));
  }
}

TEST(Rounds, SmallOnesGoTogether) {
  const std::vector<TensorSlice> tensors{of(2), of(0), of(2), of(1), of(4)};
  EXPECT_THAT(plan_rounds(tensors, 4),
              ElementsAre(ElementsAre(Segment{0, 0, 2}, Segment{2, 0, 2}),
                          ElementsAre(Segment{3, 0, 1}), ElementsAre(Segment{4, 0, 4})));
  EXPECT_THAT(plan_rounds({}, 4), testing::IsEmpty());
}

TEST(CommThreadTest, RunsJobsInOrderAndSaysHowFarItIs) {
  std::vector<int> seen;
  CommThread thread([] { ADD_FAILURE(); });
  for (int call = 0; call < 2; ++call) {
    thread.begin();
    for (int i = 0; i < 3; ++i) thread.post([&seen, i] { seen.push_back(i); });
    thread.wait_for(3);
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(CommThreadTest, AFailureWakesTheCallerAndEndsWhatFollows) {
  std::atomic<bool> woken{false};
  bool later = false;
  CommThread thread([&] { woken = true; });
  thread.begin();
  thread.post([] { throw Error(Errc::timeout, "late"); });
  thread.post([&] { later = true; });
  EXPECT_EQ(error_of([&] { thread.wait_for(1); }).code(), Errc::timeout);
  EXPECT_NE(thread.cancel(), nullptr);
  thread.drain();
  EXPECT_TRUE(woken);
  EXPECT_FALSE(later);
  EXPECT_EQ(error_of([&] { thread.post([] {}); }).code(), Errc::aborted);
}

/// Hosts as groups of threads. `ways` null means the default algorithms. If hosts have transports
/// of their own, the stages overlap.
struct HostsCase {
  std::vector<int> host_of;
  const char* ways = nullptr;
  bool own_hosts = false;
};

void PrintTo(const HostsCase& hosts, std::ostream* out) {
  *out << testing::PrintToString(hosts.host_of) << (hosts.ways ? hosts.ways : "")
       << (hosts.own_hosts ? " overlapping" : "");
}

class Hosts : public testing::TestWithParam<HostsCase> {
 protected:
  /// Bytes by host through the transport of all ranks.
  struct Traffic {
    std::vector<std::int64_t> left;
    std::vector<std::int64_t> stayed;
  };

  /// Runs `body` on every rank with the backend of this topology.
  static Traffic run(const std::function<void(Backend&, int rank)>& body) {
    const std::vector<int>& host_of = GetParam().host_of;
    std::vector<std::atomic<std::int64_t>> sent(host_of.size());
    std::vector<std::atomic<std::int64_t>> stayed(host_of.size());
    std::vector<std::unique_ptr<Backend>> own = host_backends();
    expect_ranks(Kind::in_process, size(), [&](int rank, std::unique_ptr<Transport> transport) {
      Topology topology;
      topology.rank = rank;
      topology.size = size();
      topology.host_of = host_of;
      const auto backend = compose_hierarchy(
          make_ring_backend(std::make_unique<Meter>(std::move(transport), host_of, sent, stayed),
                            host_of),
          std::move(own[static_cast<std::size_t>(rank)]), topology, soon());
      if (GetParam().ways) backend->use(AlgorithmTable::parse(GetParam().ways));
      body(*backend, rank);
    });
    return {{sent.begin(), sent.end()}, {stayed.begin(), stayed.end()}};
  }
  static int size() { return static_cast<int>(GetParam().host_of.size()); }
  static std::vector<DType> dtypes() {
    if (kSanitized || GetParam().ways) return {DType::bf16, DType::f32};
    return {DType::u8,   DType::i32, DType::i64, DType::f16,
            DType::bf16, DType::f32, DType::f64, DType::boolean};
  }
  /// The last tensor is cut into segments where these are short.
  static std::vector<std::int64_t> counts() {
    if (GetParam().ways) return {0, 5, 3'001, 33'001};
    return {0, 1, 2, 3, 5, 1'000, 9'001};
  }
  static int hosts() {
    const std::vector<int>& host_of = GetParam().host_of;
    return 1 + *std::max_element(host_of.begin(), host_of.end());
  }

 private:
  /// Returns the host backend of each rank, or null where the host has none.
  static std::vector<std::unique_ptr<Backend>> host_backends() {
    std::vector<std::unique_ptr<Backend>> backends(GetParam().host_of.size());
    for (int host = 0; GetParam().own_hosts && host < hosts(); ++host) {
      std::vector<std::size_t> ranks;
      for (std::size_t rank = 0; rank < backends.size(); ++rank) {
        if (GetParam().host_of[rank] == host) ranks.push_back(rank);
      }
      auto transports = make_in_process_transports(static_cast<int>(ranks.size()));
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        backends[ranks[i]] = make_ring_backend(std::move(transports[i]));
      }
    }
    return backends;
  }
};

constexpr const char* kShort = "lanes/65536";
INSTANTIATE_TEST_SUITE_P(
    Topologies, Hosts,
    testing::Values(
        HostsCase{in_order({2, 2})}, HostsCase{in_order({3, 1})}, HostsCase{in_order({1, 3})},
        HostsCase{in_order({2, 2, 2})}, HostsCase{in_order({1, 1})}, HostsCase{in_order({3, 1, 2})},
        HostsCase{{0, 1, 0, 1}}, HostsCase{{0, 1, 1, 0, 1}}, HostsCase{{0, 1, 2, 2, 1, 0}},
        HostsCase{in_order({4})}, HostsCase{in_order({2, 2}), kShort, true},
        HostsCase{in_order({3, 2, 1}), kShort, true}, HostsCase{{0, 1, 1, 0}, kShort, true},
        HostsCase{in_order({1, 3}), kShort}, HostsCase{in_order({2, 1}), "leaders", true},
        HostsCase{in_order({2, 2}), "flat,4000:leaders,9000:lanes/65536", true}));

TEST_P(Hosts, EveryTypeAndOperationGivesTheReference) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    for (const DType dtype : dtypes()) {
      for (const ReduceOp op :
           {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
        if (!can_reduce(dtype, op)) continue;
        if (dtype == DType::u8 && op == ReduceOp::product && size() > 5) continue;  // above 255
        SCOPED_TRACE(fmt::format("{} {} rank {}", to_string(dtype), to_string(op), rank));
        EXPECT_EQ(checks.allreduce(dtype, op, counts(), true), 0);
        EXPECT_EQ(checks.allreduce(dtype, op, counts(), false), 0);
        EXPECT_EQ(checks.allreduce_without_last(dtype, op, counts()), 0);
      }
    }
  });
}

TEST_P(Hosts, ScalesApplyOnce) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::max}) {
      EXPECT_EQ(checks.allreduce(DType::f32, op, counts(), true, {0.5, 4}), 0);
      EXPECT_EQ(checks.allreduce_without_last(DType::f32, op, counts(), {2, 0.25}), 0);
    }
    EXPECT_EQ(checks.allreduce(DType::i32, ReduceOp::sum, counts(), false, {2, 1}), 0);
  });
}

TEST_P(Hosts, TheOtherOperationsWorkBesideIt) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    for (int root = 0; root < size(); ++root) {
      EXPECT_EQ(checks.broadcast(DType::f32, root, counts()), 0);
    }
    EXPECT_EQ(checks.allgather(DType::i16, {0, 5, -1}), 0);
    EXPECT_EQ(checks.allgather(DType::f64, {3'000}), 0);
    for (const DType dtype : {DType::f16, DType::f32, DType::i32}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
        EXPECT_EQ(checks.reducescatter(dtype, op, {0, 7, 100, -1}), 0);
        EXPECT_EQ(checks.reducescatter(dtype, op, {30}), 0);
      }
    }
    EXPECT_EQ(checks.reducescatter(DType::f32, ReduceOp::average, {9, 70}, {0.5, 4}), 0);
    EXPECT_EQ(checks.reducescatter(DType::f32, ReduceOp::max, {9, 70}, {2, 0.25}), 0);
    EXPECT_EQ(checks.alltoall(DType::i32, 3), 0);
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {12}, true), 0);
    backend.barrier(soon());
  });
}

TEST_P(Hosts, BitsAreTheSameOnAllRanksAndWhateverIsFused) {
  std::mutex mutex;
  std::vector<std::vector<float>> alone;
  std::vector<std::vector<float>> fused;
  run([&](Backend& backend, int rank) {
    std::vector<std::vector<float>> data(2);
    const auto refill = [&] {
      for (std::size_t t = 0; t < 2; ++t) {
        data[t].clear();
        for (int i = 0; i < 5'003 * static_cast<int>(t + 1); ++i) {
          data[t].push_back(1.0F / static_cast<float>(1 + (i * 7 + rank * 13) % 101));
        }
      }
    };
    const auto slice = [&](std::size_t t) {
      auto* const bytes = reinterpret_cast<std::byte*>(data[t].data());
      return TensorSlice{bytes, bytes, std::ssize(data[t])};
    };
    refill();
    const TensorSlice one = slice(0);
    backend.allreduce({.tensors = {&one, 1}, .device = {}, .op = ReduceOp::sum}, soon());
    {
      const std::lock_guard lock(mutex);
      alone.push_back(data[0]);
    }
    refill();
    const std::array<TensorSlice, 2> both{slice(1), slice(0)};
    backend.allreduce({.tensors = both, .device = {}, .op = ReduceOp::sum}, soon());
    const std::lock_guard lock(mutex);
    fused.push_back(data[0]);
  });
  ASSERT_EQ(alone.size(), static_cast<std::size_t>(size()));
  EXPECT_THAT(alone, testing::Each(alone.front()));
  EXPECT_THAT(fused, testing::Each(alone.front()));
}

TEST_P(Hosts, LeadersAndLanesGiveTheSameBits) {
  std::mutex mutex;
  std::vector<std::vector<float>> sums;
  const std::vector<int>& host_of = GetParam().host_of;
  for (const char* const ways : {"leaders", "lanes/2097152"}) {
    run([&](Backend& backend, int rank) {
      dynamic_cast<HierarchicalBackend&>(backend).use(AlgorithmTable::parse(ways));
      // The result is rounded between hosts only, because within a host one rank has all
      // contributions.
      const bool first = rank == 0 || host_of[static_cast<std::size_t>(rank)] !=
                                          host_of[static_cast<std::size_t>(rank) - 1];
      std::vector<float> data(10'007);
      for (std::size_t i = 0; first && i < data.size(); ++i) {
        data[i] =
            1.0F / static_cast<float>(1 + (i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
      }
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      const TensorSlice slice{bytes, bytes, std::ssize(data)};
      backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
      const std::lock_guard lock(mutex);
      sums.push_back(std::move(data));
    });
  }
  for (const std::vector<float>& sum : sums) EXPECT_TRUE(sum == sums.front());
}

constexpr std::int64_t kElements = 216'000;  // divides evenly among lanes, none of which is small

void sum_ones(Backend& backend, int ranks) {
  std::vector<float> data(kElements, 1);
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const TensorSlice slice{bytes, bytes, kElements};
  backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
  EXPECT_EQ(std::count(data.begin(), data.end(), static_cast<float>(ranks)), kElements);
}

/// Returns the share of a sum over `hosts` hosts that each must send.
double carried_once(int hosts) {
  return 2.0 * (hosts - 1) / hosts * static_cast<double>(kElements * sizeof(float));
}

TEST_P(Hosts, ALinkCarriesTheBytesOnce) {
  const Traffic traffic = run([](Backend& backend, int) { sum_ones(backend, size()); });
  if (GetParam().ways && GetParam().ways != std::string(kShort)) return;  // not by lanes
  for (int host = 0; host < hosts(); ++host) {
    // Segments need not divide evenly.
    EXPECT_NEAR(static_cast<double>(traffic.left[static_cast<std::size_t>(host)]),
                carried_once(hosts()), carried_once(hosts()) / 1000)
        << "host " << host;
  }
}

TEST_P(Hosts, AFlatSumLeavesAHostOnce) {
  if (hosts() < 2) return;
  const Traffic traffic = run([](Backend& backend, int) {
    dynamic_cast<HierarchicalBackend&>(backend).use(AlgorithmTable::parse("flat"));
    sum_ones(backend, size());
  });
  // A ring that goes back and forth between hosts sends a multiple of this.
  for (int host = 0; host < hosts(); ++host) {
    EXPECT_EQ(static_cast<double>(traffic.left[static_cast<std::size_t>(host)]),
              carried_once(size()));
  }
}

TEST_P(Hosts, ABroadcastFromAnyRootLeavesAHostOnce) {
  constexpr auto kBytes = static_cast<std::int64_t>(kElements * sizeof(float));
  const std::vector<int>& host_of = GetParam().host_of;
  for (int root = 0; root < size(); ++root) {
    SCOPED_TRACE(root);
    const Traffic traffic = run([root](Backend& backend, int rank) {
      std::vector<float> data(kElements, static_cast<float>(rank));
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      const TensorSlice slice{bytes, bytes, kElements};
      backend.broadcast({.tensors = {&slice, 1}, .device = {}, .root = root}, soon());
      EXPECT_EQ(std::count(data.begin(), data.end(), static_cast<float>(root)), kElements);
    });
    // The last host sends to no other host, unless the root is not the first rank of its own.
    const auto first =
        std::find(host_of.begin(), host_of.end(), host_of[static_cast<std::size_t>(root)]);
    const bool all = hosts() > 1 && first - host_of.begin() != root;
    std::int64_t sum = 0;
    for (const std::int64_t left : traffic.left) {
      EXPECT_LE(left, kBytes);
      sum += left;
    }
    EXPECT_EQ(sum, (hosts() - (all ? 0 : 1)) * kBytes);
  }
}

/// A reducescatter or an allgather is half of a sum. With even hosts (see EvenHosts), each host
/// sends half as many bytes as in a sum; otherwise a link carries every block but one, each once.
TEST_P(Hosts, ALinkCarriesWhatOthersNeedOnce) {
  const bool even = EvenHosts::of(GetParam().host_of).has_value();
  const double once = even ? carried_once(hosts()) / 2 : carried_once(size()) / 2;
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), kElements / size());
  for (const bool scatter : {false, true}) {
    const Traffic traffic = run([&](Backend& backend, int) {
      std::vector<float> whole(kElements, 1);
      std::vector<float> part(static_cast<std::size_t>(counts.front()), 1);
      auto* const all = reinterpret_cast<std::byte*>(whole.data());
      auto* const own = reinterpret_cast<std::byte*>(part.data());
      const GatherSlice gathered{own, all, counts};
      const ScatterSlice scattered{all, own, counts};
      if (scatter) {
        backend.reducescatter({.tensors = {&scattered, 1}, .device = {}}, soon());
        EXPECT_EQ(part, std::vector<float>(part.size(), static_cast<float>(size())));
      } else {
        backend.allgather({.tensors = {&gathered, 1}, .device = {}}, soon());
      }
    });
    for (int host = 0; host < hosts(); ++host) {
      EXPECT_EQ(static_cast<double>(traffic.left[static_cast<std::size_t>(host)]), once);
    }
  }
}

TEST(EvenHosts, AreThoseWithAsManyRanksOneAfterTheOther) {
  EXPECT_EQ(EvenHosts::of(in_order({2, 2, 2}))->each, 2);
  EXPECT_EQ(EvenHosts::of(in_order({1, 1}))->hosts, 2);
  EXPECT_FALSE(EvenHosts::of(in_order({3, 1})));
  EXPECT_FALSE(EvenHosts::of(in_order({3, 1, 2})));
  EXPECT_FALSE(EvenHosts::of(std::vector{0, 1, 0, 1}));
}

TEST_P(Hosts, ProcessSetsOfAnyRanks) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    const std::vector<int> all = all_ranks(size());
    const std::vector<int> but_first(all.begin() + 1, all.end());
    const std::vector<int> but_last(all.begin(), all.end() - 1);
    EXPECT_EQ(checks.subsets({but_first, {0, size() - 1}, but_last, {0}, {0, 1}, all}), 0);
  });
}

TEST_P(Hosts, AProcessSetHasLanesOfItsOwn) {
  std::vector<int> set = all_ranks(size());
  set.erase(set.begin());
  const std::vector<int> hosts_of_set = hosts_among(GetParam().host_of, set);
  const int hosts_in_set = 1 + *std::max_element(hosts_of_set.begin(), hosts_of_set.end());
  const Traffic traffic = run([&](Backend& backend, int rank) {
    if (rank > 0) sum_ones(*backend.subset(set, soon()), size() - 1);
  });
  if (GetParam().ways && GetParam().ways != std::string(kShort)) return;  // not by lanes
  for (const int rank : set) {
    const auto host = static_cast<std::size_t>(GetParam().host_of[static_cast<std::size_t>(rank)]);
    EXPECT_NEAR(static_cast<double>(traffic.left[host]), carried_once(hosts_in_set),
                carried_once(hosts_in_set) / 1000)
        << "host " << host;
  }
}

TEST_P(Hosts, AProcessSetWithinAHostUsesWhatTheHostHas) {
  const std::vector<int>& host_of = GetParam().host_of;
  std::vector<std::vector<int>> sets(host_of.size());
  for (int rank = 0; rank < size(); ++rank) {
    sets[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])].push_back(rank);
  }
  const Traffic traffic = run([&](Backend& backend, int rank) {
    const auto& set = sets[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])];
    sum_ones(*backend.subset(set, soon()), static_cast<int>(set.size()));
  });
  EXPECT_THAT(traffic.left, testing::Each(0));
  if (GetParam().own_hosts) {
    EXPECT_THAT(traffic.stayed, testing::Each(0));
  }
}

TEST_P(Hosts, WhatEndsAProcessSetEndsTheWhole) {
  if (hosts() < 2) return;
  run([](Backend& backend, int rank) {
    const auto alone = backend.subset(std::vector{rank}, soon());
    alone->abort();
    EXPECT_NE(error_of([&] { backend.barrier(soon()); }).code(), Errc::timeout);
  });
}

TEST_P(Hosts, AnAbortEndsAllOfIt) {
  run([](Backend& backend, int rank) {
    std::vector<float> data(100'000, 1);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{bytes, bytes, std::ssize(data)};
    const auto sum = [&] {
      backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
    };
    sum();
    if (rank == 0) {
      backend.abort();
      EXPECT_EQ(error_of(sum).code(), Errc::aborted);
    } else if (size() > 1) {
      EXPECT_NE(error_of(sum).code(), Errc::timeout);  // the others lose rank 0
    }
  });
}

}  // namespace
}  // namespace hvd::test
