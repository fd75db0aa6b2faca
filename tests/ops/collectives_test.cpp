// Tests allgather, broadcast, barrier and the end of a backend over every transport.
#include <atomic>
#include <cstring>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using Buffer = std::vector<std::byte>;

Buffer contribution(DType dtype, int rank, std::size_t tensor, std::int64_t count) {
  return random_values(dtype, count, static_cast<std::uint64_t>(rank) * 100 + tensor);
}

class AllgatherTest : public EveryTransport {
 protected:
  /// counts[tensor][rank]
  static void run(const std::vector<std::vector<std::int64_t>>& counts, DType dtype) {
    expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = make_ring_backend(std::move(transport));
      std::vector<Buffer> inputs;
      std::vector<Buffer> outputs;
      std::vector<Buffer> wanted;
      for (std::size_t t = 0; t < counts.size(); ++t) {
        inputs.push_back(contribution(dtype, rank, t, counts[t][static_cast<std::size_t>(rank)]));
        Buffer all;
        for (int r = 0; r < size(); ++r) {
          const Buffer part = contribution(dtype, r, t, counts[t][static_cast<std::size_t>(r)]);
          all.insert(all.end(), part.begin(), part.end());
        }
        outputs.emplace_back(all.size());
        wanted.push_back(std::move(all));
      }
      std::vector<GatherSlice> slices;
      for (std::size_t t = 0; t < counts.size(); ++t) {
        slices.push_back({inputs[t].empty() ? nullptr : inputs[t].data(),
                          outputs[t].empty() ? nullptr : outputs[t].data(), counts[t]});
      }
      backend->allgather({.tensors = slices, .device = {}, .dtype = dtype}, soon());
      EXPECT_EQ(outputs, wanted);
    });
  }

  [[nodiscard]] static std::vector<std::int64_t> rows(std::int64_t first, std::int64_t step) {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size(); ++rank) counts.push_back(first + step * rank);
    return counts;
  }
};

TEST_P(AllgatherTest, OneTensor) {
  run({rows(10, 0)}, DType::f32);
  run({rows(1, 3)}, DType::u8);
  run({rows(40'000, 1001)}, DType::i64);
}

TEST_P(AllgatherTest, WithoutRowsOnSomeRanksFusedWithOthers) {
  auto only_last = rows(0, 0);
  only_last.back() = 7;
  run({rows(0, 0)}, DType::f32);
  run({rows(0, 2)}, DType::f32);
  run({only_last}, DType::i16);
  run({rows(3, 0), rows(0, 0), only_last, rows(0, 5), rows(1000, 7)}, DType::f16);
  run({rows(0, 0), rows(0, 0)}, DType::f64);
}

TEST_P(AllgatherTest, InPlace) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    std::vector<std::int32_t> data(static_cast<std::size_t>(size()) * 3, -1);
    for (int i = 0; i < 3; ++i) data[static_cast<std::size_t>(rank * 3 + i)] = rank * 10 + i;
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), 3);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const GatherSlice slice{bytes + rank * 12, bytes, counts};
    backend->allgather({.tensors = {&slice, 1}, .device = {}, .dtype = DType::i32}, soon());
    for (int r = 0; r < size(); ++r) {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(data[static_cast<std::size_t>(r * 3 + i)], r * 10 + i);
    }
  });
}

HVD_ON_EVERY_TRANSPORT(AllgatherTest, 1, 2, 3, 4, 5, 8);

class BroadcastTest : public EveryTransport {
 protected:
  static void run(const std::vector<std::int64_t>& counts, bool in_place) {
    expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = make_ring_backend(std::move(transport));
      for (int root = 0; root < size(); ++root) {
        std::vector<Buffer> inputs;
        std::vector<Buffer> outputs;
        std::vector<TensorSlice> slices;
        for (std::size_t t = 0; t < counts.size(); ++t) {
          inputs.push_back(contribution(DType::f32, rank, t, counts[t]));
          outputs.push_back(in_place ? inputs[t] : Buffer(inputs[t].size()));
        }
        for (std::size_t t = 0; t < counts.size(); ++t) {
          if (counts[t] == 0) {
            slices.push_back({});
          } else {
            slices.push_back(
                {in_place ? outputs[t].data() : inputs[t].data(), outputs[t].data(), counts[t]});
          }
        }
        backend->broadcast({.tensors = slices, .device = {}, .dtype = DType::f32, .root = root},
                           soon());
        for (std::size_t t = 0; t < counts.size(); ++t) {
          EXPECT_TRUE(outputs[t] == contribution(DType::f32, root, t, counts[t]))
              << "root " << root << ", tensor " << t;
          EXPECT_TRUE(in_place || inputs[t] == contribution(DType::f32, rank, t, counts[t]))
              << "the input was written";
        }
      }
    });
  }
};

TEST_P(BroadcastTest, FromEveryRoot) {
  for (const bool in_place : {false, true}) {
    run({1}, in_place);
    run({1000}, in_place);
    run({140'003}, in_place);  // in segments
  }
  run({0}, true);
}

TEST_P(BroadcastTest, FusedTensors) {
  run({3, 0, 500, 1}, false);
  run({3, 0, 500, 1}, true);
  run({80'001, 0, 60'000}, false);
}

HVD_ON_EVERY_TRANSPORT(BroadcastTest, 1, 2, 3, 4, 5, 8);

class BarrierTest : public EveryTransport {};

TEST_P(BarrierTest, NobodyLeavesBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  expect_ranks(kind(), size(), [&](int, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      backend->barrier(soon());
      EXPECT_GE(arrived.load(), round * size());
      backend->barrier(soon());
    }
  });
}

HVD_ON_EVERY_TRANSPORT(BarrierTest, 1, 2, 3, 4, 5, 8);

class BackendEnds : public EveryTransport {
 protected:
  static void reduce_some(Backend& backend, Deadline deadline) {
    std::vector<float> data(100'000, 1.0F);
    const auto* const in = reinterpret_cast<const std::byte*>(data.data());
    auto* const out = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{in, out, static_cast<std::int64_t>(data.size())};
    backend.allreduce({.tensors = {&slice, 1}, .device = {}}, deadline);
  }
};

TEST_P(BackendEnds, AbortStopsItForGood) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    if (rank != 0) return;
    backend->abort();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(error_of([&] { reduce_some(*backend, soon()); }).code(), Errc::aborted);
      EXPECT_EQ(error_of([&] { backend->barrier(soon()); }).code(), Errc::aborted);
    }
  });
}

TEST_P(BackendEnds, ALostRankIsAnErrorOnItsNeighbour) {
  if (size() == 1) return;
  std::promise<void> over;
  std::shared_future<void> done = over.get_future().share();
  std::atomic<int> named{0};
  (void)run_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    backend->barrier(soon());
    if (rank == size() - 1) return;  // and its transport with it
    const Error error = error_of([&] {
      for (;;) reduce_some(*backend, soon());
    });
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
    if (error.fault().rank == size() - 1) ++named;
    // Otherwise the neighbours would lose the other ranks one after the other, which is not tested
    // here.
    if (rank == 0) {
      over.set_value();
    } else {
      done.wait_until(soon());
    }
  });
  EXPECT_GE(named.load(), 1);
}

HVD_ON_EVERY_TRANSPORT(BackendEnds, 1, 2, 3);

TEST(RingBackend, SupportsHostMemoryButNoMeanOfBooleans) {
  const auto backend = make_ring_backend(std::move(make_in_process_transports(1).front()));
  const Device cpu{};
  const Device gpu{.kind = Device::Kind::cuda, .index = 0};
  EXPECT_TRUE(backend->supports(OpKind::allreduce, cpu, DType::bf16, ReduceOp::average));
  EXPECT_TRUE(backend->supports(OpKind::allgather, cpu, DType::boolean, ReduceOp::average));
  EXPECT_FALSE(backend->supports(OpKind::allreduce, cpu, DType::boolean, ReduceOp::average));
  EXPECT_FALSE(backend->supports(OpKind::allreduce, gpu, DType::f32, ReduceOp::sum));
}

}  // namespace
}  // namespace hvd::test
