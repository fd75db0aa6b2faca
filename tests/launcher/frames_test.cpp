#include "transport/frames.hpp"

#include <random>
#include <tuple>

#include <gtest/gtest.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/elastic_messages.hpp>

namespace hvd::launcher {
namespace {

std::span<const std::byte> without_length(const Bytes& bytes) {
  return std::span(bytes).subspan(sizeof(std::uint32_t));
}

template <typename T>
T round_trip(const T& frame) {
  return std::get<T>(decode(without_length(encode(frame))));
}

Bytes bytes_of(std::string_view text) {
  Bytes bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

std::vector<Frame> samples() {
  std::array<std::byte, Secret::kSize> secret{};
  secret[5] = std::byte{7};
  return {Prepare{.version = "0.1.0",
                  .job_id = "hvd-1",
                  .epoch = 2,
                  .rendezvous = RendezvousReach::network,
                  .host_timeout = std::chrono::milliseconds{2'500},
                  .interfaces = "eth0",
                  .directory = "/here",
                  .program = {"./train", ""},
                  .environment = {"A=1"},
                  .ranks = {{3, {"HVD_RANK=3"}}},
                  .secret = Secret(secret),
                  .binding = {BindTo::numa, MapBy::core, 4}},
          Launch{{"HVD_STORE=tcp:10.0.0.1:4"}},
          Forward{10},
          End{15, std::chrono::milliseconds{1500}},
          Credit{4096},
          Prepared{"a", 2, "tcp:10.0.0.1:4", "10.0.0.1", 4000, "other jobs hold 1 of 2 cores"},
          Refused{127, "no"},
          Started{3, 1234, "0-3,8"},
          Output{3, Stream::err, bytes_of("line\n")},
          Exited{3, 0x0700, std::chrono::milliseconds{3200}},
          Exited{3, 0, std::chrono::milliseconds{3200}, true},
          Exited{3, 6, std::chrono::milliseconds{3200}, false, 1, true},
          Gone{},
          Done{},
          Beat{},
          Suspend{},
          Join{"0.1.0", 1, 2, 4, "b"},
          Finished{7, true, "hvdrun: rank 0 …\n"},
          StatusRequest{},
          RankUsage{3, std::chrono::milliseconds{1500}, std::uint64_t{1} << 40},
          RankUsage{3, std::chrono::milliseconds{1500}, 1, std::uint64_t{1} << 35},
          RankUsage{3, std::chrono::milliseconds{1500}, 1, {}, std::uint8_t{100}},
          RankAnswer{3, bytes_of("anything")},
          StartWorker{7},
          KillWorker{7},
          ElasticMessage{7, bytes_of("anything")},
          Serve{2, RendezvousReach::network},
          Served{2, "tcp:10.0.0.1:4", "10.0.0.1", 4000}};
}

TEST(FramesTest, PrepareComesBackAsSent) {
  const Frame sent = samples()[0];
  const auto back = round_trip(std::get<Prepare>(sent));
  EXPECT_EQ(back.version, "0.1.0");
  EXPECT_EQ(back.job_id, "hvd-1");
  EXPECT_EQ(back.epoch, 2U);
  EXPECT_EQ(back.rendezvous, RendezvousReach::network);
  EXPECT_EQ(back.host_timeout, std::chrono::milliseconds{2'500});
  EXPECT_EQ(back.interfaces, "eth0");
  EXPECT_EQ(back.directory, "/here");
  EXPECT_EQ(back.program, (std::vector<std::string>{"./train", ""}));
  EXPECT_EQ(back.environment, std::vector<std::string>{"A=1"});
  ASSERT_EQ(back.ranks.size(), 1U);
  EXPECT_EQ(back.ranks[0].rank, 3);
  EXPECT_EQ(back.ranks[0].variables, std::vector<std::string>{"HVD_RANK=3"});
  EXPECT_EQ(back.secret.bytes()[5], std::byte{7});
  EXPECT_EQ(back.binding, (BindingOptions{BindTo::numa, MapBy::core, 4}));
}

TEST(FramesTest, FieldsComeBackAsSent) {
  EXPECT_EQ(round_trip(End{15, std::chrono::milliseconds{1500}}).grace.count(), 1500);
  EXPECT_EQ(round_trip(Refused{127, "no"}).message, "no");
  EXPECT_EQ(round_trip(Launch{{"A=1", ""}}).variables, (std::vector<std::string>{"A=1", ""}));
  EXPECT_EQ(round_trip(Prepared{"a", 2, "s", "m", 7}).master_port, 7);
  EXPECT_EQ(round_trip(Prepared{"a", 2, "s", "m", 7, "why"}).unbound, "why");
  EXPECT_EQ(round_trip(Started{3, 1234, "0-3,8"}).cpus, "0-3,8");
  const auto output = round_trip(Output{3, Stream::err, bytes_of("line\n")});
  EXPECT_EQ(output.rank, 3);
  EXPECT_EQ(output.stream, Stream::err);
  EXPECT_EQ(output.bytes, bytes_of("line\n"));
  EXPECT_EQ(round_trip(Exited{3, 0x0700, std::chrono::milliseconds{3200}}).status, 0x0700);
  EXPECT_TRUE(round_trip(Exited{3, 0, {}, true}).without_shutdown);
  const auto victim = round_trip(Exited{3, 6, {}, false, 1, true});
  EXPECT_EQ(std::tie(victim.blames, victim.blamed_left), std::make_tuple(1, true));
  const auto join = round_trip(Join{"0.1.0", 1, 2, 4, "b"});
  EXPECT_EQ(std::tie(join.version, join.node_rank, join.nodes, join.processes, join.hostname),
            std::make_tuple("0.1.0", 1, 2, 4, "b"));
  const auto over = round_trip(Finished{7, true, "why"});
  EXPECT_EQ(std::tie(over.code, over.again, over.report), std::make_tuple(7, true, "why"));
}

TEST(FramesTest, ElasticFieldsComeBackAsSent) {
  Prepare frame;
  frame.program = {"x"};
  frame.workers = 4;
  EXPECT_EQ(round_trip(frame).workers, 4);
  EXPECT_EQ(round_trip(StartWorker{7, 3}).rank, 7);
  EXPECT_EQ(round_trip(StartWorker{7, 3}).workers, 3);
  EXPECT_EQ(round_trip(KillWorker{7}).rank, 7);
  const auto message = round_trip(ElasticMessage{7, bytes_of("m")});
  EXPECT_EQ(std::tie(message.rank, message.bytes), std::make_tuple(7, bytes_of("m")));
  const auto serve = round_trip(Serve{2, RendezvousReach::network});
  EXPECT_EQ(std::tie(serve.generation, serve.reach), std::make_tuple(2U, RendezvousReach::network));
  const auto served = round_trip(Served{2, "s", "m", 7});
  EXPECT_EQ(std::tie(served.generation, served.store, served.master_host, served.master_port),
            std::make_tuple(2U, "s", "m", 7));
}

TEST(FramesTest, WhatIsKnownOfGpusComesBackAsSent) {
  const auto both = round_trip(RankUsage{3, {}, 1, std::uint64_t{1} << 35, std::uint8_t{57}});
  EXPECT_EQ(both.gpu_memory, std::uint64_t{1} << 35);
  EXPECT_EQ(both.gpu_load, 57);
  const auto none = round_trip(RankUsage{3, {}, 1});
  EXPECT_FALSE(none.gpu_memory);
  EXPECT_FALSE(none.gpu_load);
}

TEST(FramesTest, EveryKindIsCanonical) {
  for (const Frame& frame : samples()) {
    const Bytes bytes = encode(frame);
    const Frame back = decode(without_length(bytes));
    EXPECT_EQ(back.index(), frame.index());
    EXPECT_EQ(encode(back), bytes) << frame.index();
  }
}

TEST(FramesTest, EveryTruncationAndAdditionIsRefused) {
  for (const Frame& frame : samples()) {
    Bytes bytes = encode(frame);
    for (std::size_t size = 0; size < without_length(bytes).size(); ++size) {
      EXPECT_THROW((void)decode(without_length(bytes).first(size)), Error) << frame.index();
    }
    bytes.push_back(std::byte{0});
    EXPECT_THROW((void)decode(without_length(bytes)), Error) << frame.index();
  }
}

TEST(FramesTest, NothingButErrorsComesFromRandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random() % 64);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 16);
    try {
      (void)decode(bytes);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::protocol);
    }
  }
}

TEST(FramesTest, ValuesOutOfRangeAreRefused) {
  EXPECT_THROW((void)round_trip(Forward{0}), Error);
  EXPECT_THROW((void)round_trip(End{99, {}}), Error);
  EXPECT_THROW((void)round_trip(End{9, std::chrono::milliseconds{-1}}), Error);
  EXPECT_THROW((void)round_trip(Credit{kOutputWindow + 1}), Error);
  EXPECT_THROW((void)round_trip(Refused{0, ""}), Error);
  EXPECT_THROW((void)round_trip(Started{-1, 5}), Error);
  EXPECT_THROW((void)round_trip(Started{1, 5, "\x1b[2J"}), Error);
  EXPECT_THROW((void)round_trip(Output{0, static_cast<Stream>(2), {}}), Error);
  EXPECT_THROW((void)round_trip(Output{0, Stream::out, Bytes(kMaxOutput + 1)}), Error);
  EXPECT_THROW((void)round_trip(Prepare{}), Error);  // no program
  EXPECT_THROW((void)round_trip(Join{"", -2, 2, 4, "b"}), Error);
  EXPECT_THROW((void)round_trip(Join{"", 0, 0, 4, "b"}), Error);
  EXPECT_THROW((void)round_trip(Join{"", 0, 2, kMostNodes + 1, "b"}), Error);
  EXPECT_THROW((void)round_trip(Finished{256, false, ""}), Error);
  EXPECT_THROW((void)round_trip(RankUsage{0, {}, 1, {}, std::uint8_t{101}}), Error);
  EXPECT_THROW((void)round_trip(StartWorker{-1}), Error);
  EXPECT_THROW((void)round_trip(StartWorker{0, 0}), Error);
  EXPECT_THROW((void)round_trip(StartWorker{0, kMostWorkers + 1}), Error);
  EXPECT_THROW((void)round_trip(KillWorker{-1}), Error);
  EXPECT_THROW((void)round_trip(ElasticMessage{0, Bytes(detail::kMaxElasticMessage + 1)}), Error);
  EXPECT_THROW((void)round_trip(Serve{0, RendezvousReach::machine}), Error);
  EXPECT_THROW((void)round_trip(Serve{1, RendezvousReach::elsewhere}), Error);
  EXPECT_THROW((void)round_trip(Served{0, "s", "m", 7}), Error);
  Prepare workers;
  workers.program = {"x"};
  workers.workers = -1;
  EXPECT_THROW((void)round_trip(workers), Error);
  workers.workers = 1;
  workers.ranks = {{0, {}}};
  EXPECT_THROW((void)round_trip(workers), Error);
  Prepare elsewhere;
  elsewhere.program = {"x"};
  elsewhere.rendezvous = static_cast<RendezvousReach>(3);
  EXPECT_THROW((void)round_trip(elsewhere), Error);
  Prepare bound;
  bound.program = {"x"};
  bound.binding.cores = -1;
  EXPECT_THROW((void)round_trip(bound), Error);
  bound.binding = {.to = static_cast<BindTo>(5)};
  EXPECT_THROW((void)round_trip(bound), Error);
}

TEST(FramesTest, WhatCannotBeSentIsTheCallersError) {
  Prepare frame;
  frame.program = {std::string(kMaxFrame, 'x')};
  try {
    (void)encode(frame);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace hvd::launcher
