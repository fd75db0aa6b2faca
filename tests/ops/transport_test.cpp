// Tests what every transport promises: bytes in order, both ways at once, and typed errors.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "transports.hpp"

namespace hvd::test {
namespace {

using Buffer = std::vector<std::byte>;

/// Returns bytes that differ from place to place and from seed to seed. To be fast, they are cut
/// from one pattern.
Buffer message(std::size_t size, unsigned seed) {
  static const Buffer pattern = [] {
    Buffer bytes(std::size_t{1} << 18);
    std::uint32_t state = 1;
    for (std::byte& byte : bytes) {
      state = state * 1664525U + 1013904223U;
      byte = std::byte(state >> 24);
    }
    return bytes;
  }();
  Buffer bytes(size);
  std::size_t from = seed * 7919U % pattern.size();
  for (std::size_t filled = 0; filled < size; from = 0) {
    const std::size_t piece = std::min(size - filled, pattern.size() - from);
    std::memcpy(bytes.data() + filled, pattern.data() + from, piece);
    filled += piece;
  }
  return bytes;
}

/// Compares all bytes at once, because a comparison of each takes long under a sanitizer.
void expect_message(const Buffer& bytes, std::size_t size, unsigned seed) {
  ASSERT_EQ(bytes.size(), size);
  const Buffer wanted = message(size, seed);
  EXPECT_TRUE(size == 0 || std::memcmp(bytes.data(), wanted.data(), size) == 0)
      << size << " bytes from seed " << seed;
}

class TransportTest : public EveryTransport {};

/// These are empty, around a cache line and a page, around 64 KiB, and more than 1 MiB.
constexpr std::size_t kSizes[] = {
    0, 1, 63, 64, 65, 4096, 65535, 70 * 1024 + 7, 8, (1 << 20) + 4096};

TEST_P(TransportTest, ExchangesAroundTheRing) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const int n = transport->size();
    if (n == 1) return;
    EXPECT_EQ(transport->rank(), rank);
    const int from = (rank + n - 1) % n;
    unsigned round = 0;
    for (const std::size_t bytes : kSizes) {
      ++round;
      const Buffer out = message(bytes, round * 100 + static_cast<unsigned>(rank));
      Buffer in(bytes);
      transport->exchange({.peer = (rank + 1) % n, .bytes = out},
                          {.peer = from, .size = bytes, .into = in.data(), .sink = {}}, soon());
      expect_message(in, bytes, round * 100 + static_cast<unsigned>(from));
    }
  });
}

TEST_P(TransportTest, FeedsSinksInOrderAndInWholeElements) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const int n = transport->size();
    if (n == 1) return;
    const int from = (rank + n - 1) % n;
    unsigned round = 0;
    for (const std::size_t bytes : kSizes) {
      for (const std::size_t granularity : {1, 2, 4, 8, 16}) {
        if (bytes % granularity != 0) continue;
        ++round;
        const Buffer out = message(bytes, round * 100 + static_cast<unsigned>(rank));
        Buffer in;
        const auto sink = [&](std::size_t offset, std::span<const std::byte> piece) {
          EXPECT_EQ(offset, in.size());
          EXPECT_GT(piece.size(), 0U);
          EXPECT_EQ(piece.size() % granularity, 0U);
          in.resize(offset + piece.size());
          std::memcpy(in.data() + offset, piece.data(), piece.size());
        };
        transport->exchange({.peer = (rank + 1) % n, .bytes = out},
                            {.peer = from,
                             .size = bytes,
                             .into = nullptr,
                             .sink = sink,
                             .granularity = granularity},
                            soon());
        expect_message(in, bytes, round * 100 + static_cast<unsigned>(from));
      }
    }
  });
}

TEST_P(TransportTest, ReachesEveryPeer) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const int n = transport->size();
    for (int distance = 1; distance < n; ++distance) {
      const int from = (rank + n - distance) % n;
      const Buffer out = message(1000, static_cast<unsigned>(rank));
      Buffer in(1000);
      transport->exchange({.peer = (rank + distance) % n, .bytes = out},
                          {.peer = from, .size = in.size(), .into = in.data(), .sink = {}}, soon());
      expect_message(in, 1000, static_cast<unsigned>(from));
    }
  });
}

TEST_P(TransportTest, SendsDifferentSizesEachWay) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    if (rank > 1 || transport->size() == 1) return;
    const std::size_t mine = rank == 0 ? 2'000'001 : 3;
    const std::size_t theirs = rank == 0 ? 3 : 2'000'001;
    const Buffer out = message(mine, static_cast<unsigned>(rank));
    Buffer in(theirs);
    transport->exchange({.peer = 1 - rank, .bytes = out},
                        {.peer = 1 - rank, .size = theirs, .into = in.data(), .sink = {}}, soon());
    expect_message(in, theirs, static_cast<unsigned>(1 - rank));
  });
}

TEST_P(TransportTest, PassesMessagesDownAChain) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    Buffer bytes = message(100'000, 7);
    if (rank != 0) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      transport->exchange(
          {}, {.peer = rank - 1, .size = bytes.size(), .into = bytes.data(), .sink = {}}, soon());
    }
    if (rank + 1 != transport->size()) {
      transport->exchange({.peer = rank + 1, .bytes = bytes}, {}, soon());
    }
    expect_message(bytes, 100'000, 7);
  });
}

HVD_ON_EVERY_TRANSPORT(TransportTest, 1, 2, 3, 4, 5, 8);

/// Rank 0 sends a byte and waits for an answer; rank 1 takes the byte, so rank 0 is in the middle
/// of its exchange, and then does something else.
class BrokenExchange : public EveryTransport {
 protected:
  static void wait_for_answer(Transport& transport, Deadline deadline = soon()) {
    const std::byte token{1};
    std::byte answer{};
    transport.exchange({.peer = 1, .bytes = {&token, 1}},
                       {.peer = 1, .size = 1, .into = &answer, .sink = {}}, deadline);
  }
  static void take_question(Transport& transport) {
    std::byte token{};
    transport.exchange({}, {.peer = 0, .size = 1, .into = &token, .sink = {}}, soon());
  }
};

TEST_P(BrokenExchange, AbortWakesIt) {
  std::promise<Transport*> shared;
  std::promise<void> aborted;
  std::promise<void> over;
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    if (rank == 0) {
      shared.set_value(transport.get());
      EXPECT_EQ(error_of([&] { wait_for_answer(*transport); }).code(), Errc::aborted);
      EXPECT_EQ(error_of([&] { wait_for_answer(*transport); }).code(), Errc::aborted);
      over.set_value();
      aborted.get_future().wait_until(soon());  // rank 1 uses this transport until then
    } else {
      take_question(*transport);
      auto other = shared.get_future();
      ASSERT_EQ(other.wait_until(soon()), std::future_status::ready);
      other.get()->abort();
      aborted.set_value();
      over.get_future().wait_until(soon());
    }
  });
}

TEST_P(BrokenExchange, AbortBeforehandPreventsIt) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    if (rank != 0) return;
    transport->abort();
    EXPECT_EQ(error_of([&] { wait_for_answer(*transport); }).code(), Errc::aborted);
  });
}

TEST_P(BrokenExchange, DeadlineEndsItNamingThePeer) {
  std::promise<void> over;
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    if (rank == 0) {
      // The connection is made first, so that only the answer is missing.
      const std::byte token{1};
      transport->exchange({.peer = 1, .bytes = {&token, 1}}, {}, soon());
      const auto began = Clock::now();
      const auto limit = std::chrono::milliseconds(120);
      std::byte answer{};
      const Error error = error_of([&] {
        transport->exchange({}, {.peer = 1, .size = 1, .into = &answer, .sink = {}}, began + limit);
      });
      EXPECT_GE(Clock::now() - began, limit);
      EXPECT_EQ(error.code(), Errc::timeout);
      EXPECT_EQ(error.fault().rank, 1);
      const Error later = error_of([&] { wait_for_answer(*transport); });
      EXPECT_EQ(later.code(), Errc::timeout) << "the first error sticks";
      over.set_value();
    } else {
      take_question(*transport);
      over.get_future().wait_until(soon());
    }
  });
}

TEST_P(BrokenExchange, NamesAPeerThatClosed) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    if (rank == 0) {
      const Error error = error_of([&] { wait_for_answer(*transport); });
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_EQ(error.fault().rank, 1);
      EXPECT_FALSE(error.fault().cause.empty());
    } else {
      take_question(*transport);
      transport.reset();
    }
  });
}

TEST_P(BrokenExchange, NamesAPeerThatTakesNoMore) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const Buffer large(64 << 20);  // more than any buffer on the way
    if (rank == 0) {
      const Error error =
          error_of([&] { transport->exchange({.peer = 1, .bytes = large}, {}, soon()); });
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_EQ(error.fault().rank, 1);
    } else {
      const auto interrupt = [](std::size_t, std::span<const std::byte>) {
        throw std::runtime_error("full");
      };
      EXPECT_THROW(
          transport->exchange(
              {}, {.peer = 0, .size = large.size(), .into = nullptr, .sink = interrupt}, soon()),
          std::runtime_error);
      transport.reset();
    }
  });
}

TEST_P(BrokenExchange, KeepsWhatAPeerSentBeforeItLeft) {
  expect_ranks(kind(), size(), [](int rank, std::unique_ptr<Transport> transport) {
    const Buffer last = message(50'000, 3);
    if (rank == 0) {
      Buffer in(last.size());
      transport->exchange({}, {.peer = 1, .size = in.size(), .into = in.data(), .sink = {}},
                          soon());
      EXPECT_EQ(in, last);
    } else {
      transport->exchange({.peer = 0, .bytes = last}, {}, soon());
      transport.reset();
    }
  });
}

HVD_ON_EVERY_TRANSPORT(BrokenExchange, 2);

}  // namespace
}  // namespace hvd::test
