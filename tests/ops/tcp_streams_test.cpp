// Tests several TCP streams between two ranks.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/store.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "transport/round_trip.hpp"
#include "transport/stripes.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Stripes, CoverAMessageExactlyOnce) {
  for (const std::size_t message :
       {std::size_t{1}, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB + 17, 5 * kMiB}) {
    for (int streams = 1; streams <= 5; ++streams) {
      std::vector<int> times(message, 0);
      for (int stream = 0; stream < streams; ++stream) {
        Stripes stripes(message, streams, stream);
        for (std::size_t step = 1; !stripes.done(); ++step) {
          const std::size_t bytes = std::min(stripes.left(), 1 + step * 7'919 % 100'000);
          for (std::size_t i = 0; i < bytes; ++i) ++times[stripes.offset() + i];
          stripes.advance(bytes);
        }
      }
      EXPECT_EQ(std::count(times.begin(), times.end(), 1), std::ssize(times))
          << message << " bytes on " << streams;
    }
  }
}

TEST(Stripes, ASmallMessageTakesTheFirstStream) {
  EXPECT_FALSE(Stripes(kMiB - 1, 4, 0).done());
  for (int stream = 1; stream < 4; ++stream) EXPECT_TRUE(Stripes(kMiB - 1, 4, stream).done());
  EXPECT_TRUE(Stripes(0, 4, 0).done());
}

TEST(RoundTrip, IsKnownOfAConnectionAndOfNothingElse) {
  const auto store = make_hash_store();
  const auto errors = run_threads(2, [&](int rank) {
    Session session(thread_config(rank, 2), store);
    const UniqueFd stream = session.network().open(1 - rank, "tcp/near", session.start_deadline());
    const auto round_trip = shortest_round_trip(stream.get());
    ASSERT_TRUE(round_trip);
    EXPECT_GT(*round_trip, std::chrono::microseconds(0));
    EXPECT_LT(*round_trip, std::chrono::seconds(10));
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
  EXPECT_EQ(shortest_round_trip(-1), std::nullopt);
  EXPECT_EQ(shortest_round_trip(STDIN_FILENO), std::nullopt);
}

class TcpStreams : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TcpStreams, testing::Values(2, 3));

TEST_P(TcpStreams, CarryMessagesOfAllSizesBothWays) {
  const int size = GetParam();
  const auto store = make_hash_store();
  const auto errors = run_threads(size, [&](int rank) {
    Session session(thread_config(rank, size), store);
    const auto transport = make_tcp_transport(session, 3);
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    const auto byte = [](int from, std::size_t i) {
      return static_cast<std::byte>(i * 31 + i / 4'096 + static_cast<std::size_t>(from));
    };
    // The sizes go up and down, since streams are opened when a message first needs them. Rank 0
    // sends more than the others.
    for (const std::size_t bytes :
         {std::size_t{8}, 3 * kMiB + 8, kMiB, kMiB - 8, std::size_t{16}}) {
      const auto size_from = [&](int from) { return bytes + (from == 0 ? kMiB : 0); };
      std::vector<std::byte> out(size_from(rank));
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = byte(rank, i);
      std::vector<std::byte> in(size_from(previous));
      for (const bool sinks : {false, true}) {
        std::fill(in.begin(), in.end(), std::byte{0});
        Incoming incoming{previous, in.size(), sinks ? nullptr : in.data(), {}, 8};
        incoming.sink = [&](std::size_t offset, std::span<const std::byte> piece) {
          EXPECT_EQ(offset % 8, 0U);
          EXPECT_EQ(piece.size() % 8, 0U);
          ASSERT_LE(offset + piece.size(), in.size());
          std::memcpy(in.data() + offset, piece.data(), piece.size());
        };
        transport->exchange({next, out}, incoming, soon());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < in.size(); ++i) wrong += in[i] != byte(previous, i) ? 1 : 0;
        EXPECT_EQ(wrong, 0U) << bytes << " bytes" << (sinks ? ", sink" : "");
      }
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
}

TEST_P(TcpStreams, ReduceToTheSameBitsAsOne) {
  const int size = GetParam();
  const auto reduced = [size](int streams) {
    const auto store = make_hash_store();
    std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
    const auto errors = run_threads(size, [&](int rank) {
      Session session(thread_config(rank, size), store);
      const auto backend = make_ring_backend(make_tcp_transport(session, streams));
      std::vector<float> data(1'000'003);
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = 1.0F / static_cast<float>(1 + (i + 17 * static_cast<std::size_t>(rank)) % 97);
      }
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      const TensorSlice slice{bytes, bytes, std::ssize(data)};
      backend->allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
      results[static_cast<std::size_t>(rank)] = std::move(data);
    });
    for (const auto& error : errors) EXPECT_EQ(error, nullptr);
    return results;
  };
  const auto one = reduced(1);
  EXPECT_TRUE(one == reduced(4));
  EXPECT_TRUE(one.front() == one.back());
}

}  // namespace
}  // namespace hvd::test
