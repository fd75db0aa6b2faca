#include "policy/messages.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

Request request() {
  Request request;
  request.name = "gradient/layer.weight";
  request.kind = OpKind::allgather;
  request.dtype = DType::bf16;
  request.op = ReduceOp::product;
  request.device = {Device::Kind::cuda, 3};
  request.shape = {5, 0, 7};
  request.root = 2;
  request.prescale = 0.25;
  request.postscale = -3.5;
  request.process_set = 7;
  request.group = "group";
  request.group_size = 4;
  request.splits = {0, 5};
  request.over_contributors = true;
  request.f32_memory = true;
  return request;
}

FrozenSchedule plan() {
  return {{PlannedBatch{0, {}, {request(), Request{}}, {{1, 2}, {3, 4}}},
           PlannedBatch{2, {1, 5}, {Request{}}, {}}}};
}

std::vector<Message> one_of_each() {
  return {
      Submitted{9, {{request(), 3}, {}}},
      ShutdownRequested{8},
      Suspicion{Errc::timeout, 4, "no data"},
      Schedule{{FusedBatch{0, {"a", "b"}, {{1, 2}, {0, 9}}, {}, 0},
                FusedBatch{3, {"c"}, {}, {request()}, 2}, Rejection{1, "d", Errc::mismatch, "why"},
                SetAdded{"s", 3, {0, 4}}, SetRemoved{"s", 3}, AllJoined{2}, Freeze{10, plan()}}},
      ShutdownAcknowledged{},
      Abort{Errc::peer_lost,
            {2, "host-b", "killed", "allreduce", "x", std::chrono::milliseconds(1500)}},
      Heartbeat{{4, 0.5, {3, 0.1, 0.01}, {2, 0.2, 0.02}}, {3, 0.1, 0.5}},
      ThawRequest{10},
      Stopped{10, 77},
      Thaw{10},
      Resume{11, {0, 77, 78}},
      PeerLost{5, "silent"}};
}

TEST(Messages, EachTypeComesBackAsItWent) {
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encode(message);
    const Message again = decode_message(bytes);
    EXPECT_EQ(again.index(), message.index());
    EXPECT_EQ(encode(again), bytes) << "type " << message.index();
  }
  const auto submitted = std::get<Submitted>(decode_message(encode(one_of_each()[0])));
  EXPECT_EQ(submitted.operations.at(0), (Announcement{request(), 3}));
  const auto schedule = std::get<Schedule>(decode_message(encode(one_of_each()[3])));
  EXPECT_EQ(schedule.decisions, std::get<Schedule>(one_of_each()[3]).decisions);
  const auto message = std::get<Abort>(decode_message(encode(one_of_each()[5])));
  EXPECT_EQ(message.fault.host, "host-b");
  EXPECT_EQ(message.fault.elapsed.count(), 1500);
  const auto heartbeat = std::get<Heartbeat>(decode_message(encode(one_of_each()[6])));
  EXPECT_EQ(heartbeat.times.second, (BlockedTime{2, 0.2, 0.02}));
  EXPECT_EQ(heartbeat.slowest, (Slowest{3, 0.1, 0.5}));
}

TEST(Messages, EveryTruncationAndEveryTailIsRefused) {
  for (const Message& message : one_of_each()) {
    Bytes bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW((void)decode_message(std::span(bytes).first(size)), Error);
    }
    bytes.push_back(std::byte{0});
    EXPECT_THROW((void)decode_message(bytes), Error);
  }
}

TEST(Messages, ValuesOutOfRangeAreRefused) {
  EXPECT_THROW((void)decode_message(Bytes{std::byte{12}}), Error);
  const auto refused = [](const Message& message) {
    EXPECT_THROW((void)decode_message(encode(message)), Error);
  };
  Request bad = request();
  bad.shape = {-1};
  refused(Submitted{0, {{bad, 0}}});
  bad = request();
  bad.shape = {};  // an allgather without a first dimension
  refused(Submitted{0, {{bad, 0}}});
  refused(Heartbeat{{1, std::nan(""), {}, {}}, {}});
  refused(Heartbeat{{1, 1, {0, -1, 0}, {}}, {}});
  refused(Heartbeat{{}, {0, HUGE_VAL, 1}});
  refused(Schedule{{FusedBatch{}}});
  refused(Schedule{{FusedBatch{0, {"a", "b"}, {{1}}, {}, 0}}});
  refused(Schedule{{FusedBatch{0, {"a", "b"}, {}, {Request{}}, 0}}});
  refused(Schedule{{SetAdded{"s", 1, {2, 2}}}});
  refused(Schedule{{SetAdded{"s", 1, {-1}}}});
  refused(Schedule{{SetAdded{"s", 1, {std::numeric_limits<int>::max()}}}});
  refused(Schedule{{Freeze{1, {}}}});
  refused(Schedule{{Freeze{1, {{PlannedBatch{}}}}}});
}

TEST(Messages, NegotiationIsToldFromTheRest) {
  std::vector<bool> found;
  for (const Message& message : one_of_each()) found.push_back(is_negotiation(encode(message)));
  EXPECT_THAT(found, testing::ElementsAre(true, false, false, true, false, false, false, true, true,
                                          true, true, false));
}

TEST(Messages, APlansDigestTellsPlansApart) {
  FrozenSchedule other = plan();
  EXPECT_EQ(digest_of(plan()), digest_of(other));
  other.batches[0].requests[1].shape = {1};
  EXPECT_NE(digest_of(plan()), digest_of(other));
}

TEST(Messages, ALongReasonIsClippedNotRefused) {
  const Message message = Schedule{{Rejection{0, "a", Errc::mismatch, std::string(1 << 20, 'x')}}};
  const auto schedule = std::get<Schedule>(decode_message(encode(message)));
  EXPECT_EQ(std::get<Rejection>(schedule.decisions[0]).message, std::string(64 * 1024, 'x'));
}

}  // namespace
}  // namespace hvd
