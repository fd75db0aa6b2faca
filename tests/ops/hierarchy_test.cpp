// Allreduces over hosts with several ranks each; hosts are groups of threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hvd/core/topology.hpp>
#include <hvd/ops/backends.hpp>

#include "hierarchy/lanes.hpp"
#include "support/backend_checks.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using testing::ElementsAre;

/// Ranks per host; a rank's host by rank.
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
  EXPECT_EQ(lanes.place, 1);
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

TEST(Lanes, OffsetsCoverATensorOfAnySize) {
  Lanes lanes;
  lanes.count = 3;
  for (const std::int64_t elements : {0L, 1L, 2L, 7L, (1L << 62) + 1}) {
    EXPECT_EQ(lanes.offset(elements, 0), 0);
    EXPECT_EQ(lanes.offset(elements, 3), elements);
    EXPECT_LE(lanes.offset(elements, 1), lanes.offset(elements, 2));
  }
}

/// Counts what goes from one host to another.
class Meter final : public Transport {
 public:
  Meter(std::unique_ptr<Transport> inner, const std::vector<int>& host_of,
        std::vector<std::atomic<std::int64_t>>& sent)
      : inner_(std::move(inner)), host_of_(host_of), sent_(sent) {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    const int here = host(rank());
    if (out.peer >= 0 && host(out.peer) != here) {
      sent_[static_cast<std::size_t>(here)] += std::ssize(out.bytes);
    }
    inner_->exchange(out, in, deadline);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  [[nodiscard]] int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<Transport> inner_;
  const std::vector<int>& host_of_;
  std::vector<std::atomic<std::int64_t>>& sent_;  // by host
};

class Hosts : public testing::TestWithParam<std::vector<int>> {
 protected:
  /// `body` on every rank, with the backend of this topology. Returns the bytes that left each
  /// host.
  static std::vector<std::int64_t> run(const std::function<void(Backend&, int rank)>& body) {
    const std::vector<int>& host_of = GetParam();
    const int size = static_cast<int>(host_of.size());
    std::vector<std::atomic<std::int64_t>> sent(host_of.size());
    expect_ranks(Kind::in_process, size, [&](int rank, std::unique_ptr<Transport> transport) {
      Topology topology;
      topology.rank = rank;
      topology.size = size;
      topology.host_of = host_of;
      const auto backend = make_hierarchical_backend(
          make_ring_backend(std::make_unique<Meter>(std::move(transport), host_of, sent)), nullptr,
          topology, soon());
      body(*backend, rank);
    });
    return {sent.begin(), sent.end()};
  }
  static int size() { return static_cast<int>(GetParam().size()); }
};
INSTANTIATE_TEST_SUITE_P(Topologies, Hosts,
                         testing::Values(in_order({2, 2}), in_order({3, 1}), in_order({1, 3}),
                                         in_order({2, 2, 2}), in_order({1, 1}), in_order({3, 1, 2}),
                                         std::vector{0, 1, 0, 1}, in_order({4})));

const std::vector<std::int64_t> kCounts{0, 1, 2, 3, 5, 1'000, 9'001};

TEST_P(Hosts, EveryTypeAndOperationGivesTheReference) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16,
                              DType::f32, DType::f64, DType::boolean}) {
      for (const ReduceOp op :
           {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
        if (dtype == DType::boolean && op == ReduceOp::average) continue;
        if (dtype == DType::u8 && op == ReduceOp::product && size() > 5) continue;  // above 255
        SCOPED_TRACE(fmt::format("{} {} rank {}", to_string(dtype), to_string(op), rank));
        EXPECT_EQ(checks.allreduce(dtype, op, kCounts, true), 0);
        EXPECT_EQ(checks.allreduce(dtype, op, kCounts, false), 0);
        EXPECT_EQ(checks.allreduce_without_last(dtype, op, kCounts), 0);
      }
    }
  });
}

TEST_P(Hosts, ScalesApplyOnce) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::max}) {
      EXPECT_EQ(checks.allreduce(DType::f32, op, kCounts, true, {0.5, 4}), 0);
      EXPECT_EQ(checks.allreduce_without_last(DType::f32, op, kCounts, {2, 0.25}), 0);
    }
    EXPECT_EQ(checks.allreduce(DType::i32, ReduceOp::sum, kCounts, false, {2, 1}), 0);
  });
}

TEST_P(Hosts, TheOtherOperationsWorkBesideIt) {
  run([](Backend& backend, int rank) {
    HostMemory memory;
    BackendChecks checks{backend, memory, Device{}, rank, size()};
    EXPECT_EQ(checks.broadcast(DType::f32, size() - 1, kCounts), 0);
    EXPECT_EQ(checks.allgather(DType::i16, {0, 5, -1}), 0);
    EXPECT_EQ(checks.reducescatter(DType::f32, ReduceOp::sum, {0, 7, 100}), 0);
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

TEST_P(Hosts, ALinkCarriesTheBytesOnce) {
  constexpr std::int64_t kElements = 180'000;  // divides evenly, and no lane of it is small
  const auto hosts = 1 + *std::max_element(GetParam().begin(), GetParam().end());
  const std::vector<std::int64_t> sent = run([](Backend& backend, int) {
    std::vector<float> data(kElements, 1);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{bytes, bytes, kElements};
    backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
    EXPECT_THAT(data, testing::Each(static_cast<float>(size())));
  });
  for (int host = 0; host < hosts; ++host) {
    EXPECT_EQ(sent[static_cast<std::size_t>(host)],
              2 * (hosts - 1) * kElements * static_cast<std::int64_t>(sizeof(float)) / hosts)
        << "host " << host;
  }
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
