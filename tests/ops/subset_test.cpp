// Tests backends for some of a group's ranks, over every transport.
#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "transports.hpp"

namespace hvd::test {
namespace {

using Ranks = std::vector<int>;

bool holds(const Ranks& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void sum(Backend& backend, std::vector<float>& data) {
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const TensorSlice slice{bytes, bytes, static_cast<std::int64_t>(data.size())};
  backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
}

/// Checks every operation once, with values that tell the ranks of the whole group apart.
void check_group(Backend& backend, const Ranks& ranks, int rank, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(ranks.size());
  const auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const auto as_float = [](auto value) { return static_cast<float>(value); };

  std::vector<float> data(static_cast<std::size_t>(count), as_float(1 + rank));
  sum(backend, data);
  const auto total = as_float(std::accumulate(ranks.begin(), ranks.end(), 0) + size);
  EXPECT_EQ(data, std::vector<float>(static_cast<std::size_t>(count), total));

  const std::vector<std::int64_t> ones(ranks.size(), 1);
  const std::vector<float> all(ranks.size(), as_float(rank));
  std::vector<float> gathered(ranks.size(), -1);
  auto* const to = reinterpret_cast<std::byte*>(gathered.data());
  backend.alltoall({.input = reinterpret_cast<const std::byte*>(all.data()),
                    .output = to,
                    .send_counts = ones,
                    .receive_counts = ones,
                    .device = {}},
                   soon());
  EXPECT_EQ(gathered, std::vector<float>(ranks.begin(), ranks.end()));

  std::fill(gathered.begin(), gathered.end(), -1.0F);
  const GatherSlice own{reinterpret_cast<const std::byte*>(all.data()), to, ones};
  backend.allgather({.tensors = {&own, 1}, .device = {}}, soon());
  EXPECT_EQ(gathered, std::vector<float>(ranks.begin(), ranks.end()));

  float part = -1;
  const ScatterSlice scattered{to, reinterpret_cast<std::byte*>(&part), ones};
  backend.reducescatter({.tensors = {&scattered, 1}, .device = {}, .op = ReduceOp::average},
                        soon());
  EXPECT_EQ(part, as_float(ranks[static_cast<std::size_t>(position)]));

  float message = as_float(rank);
  auto* const word = reinterpret_cast<std::byte*>(&message);
  const TensorSlice slice{word, word, 1};
  backend.broadcast({.tensors = {&slice, 1}, .device = {}, .root = static_cast<int>(size) - 1},
                    soon());
  EXPECT_EQ(message, as_float(ranks.back()));
  backend.barrier(soon());
}

class SubsetTest : public EveryTransport {};

TEST_P(SubsetTest, OverlappingOnesWorkInTurnAndWithTheWhole) {
  const int n = size();
  const std::vector<Ranks> groups{{0, 1}, {1, 2}, {0, 2}, {n - 1}, all_ranks(n), {0, n - 1}};
  expect_ranks(kind(), n, [&](int rank, std::unique_ptr<Transport> transport) {
    const auto whole = make_ring_backend(std::move(transport));
    std::vector<std::unique_ptr<Backend>> subsets;
    for (const Ranks& ranks : groups) {
      subsets.push_back(holds(ranks, rank) ? whole->subset(ranks, soon()) : nullptr);
    }
    for (int round = 0; round < 3; ++round) {
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (subsets[g]) check_group(*subsets[g], groups[g], rank, round == 0 ? 3 : 30'011);
      }
      check_group(*whole, all_ranks(n), rank, 1009);
    }
  });
}

TEST_P(SubsetTest, OfASubset) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const auto whole = make_ring_backend(std::move(transport));
    if (rank == 0) return;
    Ranks ranks = all_ranks(size());
    ranks.erase(ranks.begin());
    const auto without_first = whole->subset(ranks, soon());
    if (rank == 1) return;
    // These are ranks in the subset: 1 and up are the ranks 2 and up of the whole group.
    Ranks inner = all_ranks(size() - 1);
    inner.erase(inner.begin());
    const auto without_two = without_first->subset(inner, soon());
    ranks.erase(ranks.begin());
    check_group(*without_two, ranks, rank, 50);
  });
}

TEST_P(SubsetTest, AFaultNamesTheRankInTheWholeGroup) {
  std::promise<void> over;
  std::shared_future<void> done = over.get_future().share();
  const int last = size() - 1;
  (void)run_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto whole = make_ring_backend(std::move(transport));
    if (rank != 0 && rank != last) {
      done.wait_until(soon());
      return;
    }
    const auto pair = whole->subset(Ranks{0, last}, soon());
    pair->barrier(soon());
    if (rank == last) return;  // and its transport with it
    const Error lost = error_of([&] {
      for (;;) pair->barrier(soon());
    });
    EXPECT_EQ(lost.code(), Errc::peer_lost) << lost.what();
    EXPECT_EQ(lost.fault().rank, last);
    const Error after = error_of([&] { whole->barrier(soon()); });
    EXPECT_EQ(after.fault().rank, last) << "the first error sticks";
    over.set_value();
  });
}

TEST_P(SubsetTest, ASilentMemberIsNamedByItsRankInTheWholeGroup) {
  std::promise<void> over;
  std::shared_future<void> done = over.get_future().share();
  const int last = size() - 1;
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto whole = make_ring_backend(std::move(transport));
    if (rank != 0 && rank != last) return;
    const auto pair = whole->subset(Ranks{0, last}, soon());
    pair->barrier(soon());
    if (rank == last) {
      done.wait_until(soon());
      return;
    }
    const Error error =
        error_of([&] { pair->barrier(Clock::now() + std::chrono::milliseconds(50)); });
    EXPECT_EQ(error.code(), Errc::timeout) << error.what();
    EXPECT_EQ(error.fault().rank, last);
    over.set_value();
  });
}

TEST_P(SubsetTest, IsAbortedWithTheWhole) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const auto whole = make_ring_backend(std::move(transport));
    const auto alone = whole->subset(Ranks{rank}, soon());
    const auto all = whole->subset(all_ranks(size()), soon());
    all->barrier(soon());
    whole->abort();
    for (Backend* backend : {alone.get(), all.get(), whole.get()}) {
      std::vector<float> data(10);
      EXPECT_EQ(error_of([&] { sum(*backend, data); }).code(), Errc::aborted);
    }
    EXPECT_EQ(error_of([&] { (void)whole->subset(Ranks{rank}, soon()); }).code(), Errc::aborted);
  });
}

TEST_P(SubsetTest, RefusesWhatIsNone) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const auto whole = make_ring_backend(std::move(transport));
    const int other = (rank + 1) % size();
    for (const Ranks& ranks : {Ranks{}, Ranks{rank, rank}, Ranks{other}, Ranks{rank, size()},
                               Ranks{-1, rank}, Ranks{2, 1, 0}}) {
      EXPECT_EQ(error_of([&] { (void)whole->subset(ranks, soon()); }).code(),
                Errc::invalid_argument);
    }
    whole->barrier(soon());
  });
}

HVD_ON_EVERY_TRANSPORT(SubsetTest, 3, 4, 5);

}  // namespace
}  // namespace hvd::test
