// Tests alltoall over every transport.
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using Buffer = std::vector<std::byte>;
/// The number of elements that one rank sends to another.
using CountOf = std::function<std::int64_t(int from, int to)>;

class AlltoallTest : public EveryTransport {
 protected:
  static void run(DType dtype, const CountOf& count_of) {
    expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = make_ring_backend(std::move(transport));
      const auto part = [&](int from, int to) {
        return random_values(dtype, count_of(from, to),
                             static_cast<std::uint64_t>(from) * 100 + static_cast<unsigned>(to));
      };
      std::vector<std::int64_t> sends;
      std::vector<std::int64_t> receives;
      Buffer input;
      Buffer wanted;
      for (int peer = 0; peer < size(); ++peer) {
        sends.push_back(count_of(rank, peer));
        receives.push_back(count_of(peer, rank));
        const Buffer out = part(rank, peer);
        const Buffer in = part(peer, rank);
        input.insert(input.end(), out.begin(), out.end());
        wanted.insert(wanted.end(), in.begin(), in.end());
      }
      const Buffer before = input;
      constexpr std::byte kGuard{0x5A};
      Buffer output(wanted.size() + 1, kGuard);
      backend->alltoall({.input = input.empty() ? nullptr : input.data(),
                         .output = wanted.empty() ? nullptr : output.data(),
                         .send_counts = sends,
                         .receive_counts = receives,
                         .device = {},
                         .dtype = dtype},
                        soon());
      EXPECT_EQ(output.back(), kGuard) << "wrote beyond the end";
      output.pop_back();
      EXPECT_TRUE(output == wanted) << "rank " << rank;
      EXPECT_TRUE(input == before) << "the input was written";
    });
  }
};

TEST_P(AlltoallTest, EveryTypeAndAwkwardCounts) {
  for (const DType dtype : kAllDTypes) {
    run(dtype, [](int, int) { return 1; });
    run(dtype, [](int from, int to) { return 3 * from + 7 * to; });
  }
}

TEST_P(AlltoallTest, WithNothingForSome) {
  run(DType::f32, [](int, int) { return 0; });
  run(DType::f32, [](int from, int to) { return from == to ? 5 : 0; });
  run(DType::f32, [](int from, int to) { return from == to ? 0 : 5; });
  run(DType::i16, [](int from, int) { return from == 0 ? 101 : 0; });
  run(DType::i16, [](int, int to) { return to == size() - 1 ? 101 : 0; });
  run(DType::f64, [](int from, int to) { return to == (from + 1) % size() ? 17 : 0; });
  run(DType::f64, [](int from, int to) { return (from * 5 + to * 3) % 4 == 0 ? 257 : 0; });
}

TEST_P(AlltoallTest, LargeParts) {
  run(DType::f32, [](int from, int to) { return 40'009 + 1'009 * from - 103 * to; });
  run(DType::u8, [](int from, int to) { return from < to ? 3'000'017 : 1; });
}

HVD_ON_EVERY_TRANSPORT(AlltoallTest, 1, 2, 3, 4, 5, 8);

}  // namespace
}  // namespace hvd::test
