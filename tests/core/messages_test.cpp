#include "coordinator/messages.hpp"

#include <gtest/gtest.h>

namespace hvd {
namespace {

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
  return request;
}

std::vector<Message> one_of_each() {
  return {Submitted{{request(), Request{}}},
          Goodbye{},
          Suspicion{Errc::timeout, 4, "no data"},
          Schedule{{Batch{{"a", "b"}, {{1, 2}, {0, 9}}}, Batch{{"c"}, {}},
                    Rejection{"d", Errc::mismatch, "why"}}},
          Farewell{},
          Poison{Errc::peer_lost,
                 {2, "host-b", "killed", "allreduce", "x", std::chrono::milliseconds(1500)}},
          Heartbeat{}};
}

TEST(Messages, EachTypeComesBackAsItWent) {
  for (const Message& message : one_of_each()) {
    const Bytes bytes = encode(message);
    const Message again = decode_message(bytes);
    EXPECT_EQ(again.index(), message.index());
    EXPECT_EQ(encode(again), bytes) << "type " << message.index();
  }
  const auto submitted = std::get<Submitted>(decode_message(encode(one_of_each()[0])));
  EXPECT_EQ(submitted.requests.at(0), request());
  const auto schedule = std::get<Schedule>(decode_message(encode(one_of_each()[3])));
  EXPECT_EQ(schedule.decisions, std::get<Schedule>(one_of_each()[3]).decisions);
  const auto poison = std::get<Poison>(decode_message(encode(one_of_each()[5])));
  EXPECT_EQ(poison.fault.host, "host-b");
  EXPECT_EQ(poison.fault.elapsed.count(), 1500);
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
  EXPECT_THROW((void)decode_message(Bytes{std::byte{7}}), Error);
  Request bad = request();
  bad.shape = {-1};
  EXPECT_THROW((void)decode_message(encode(Submitted{{bad}})), Error);
  bad = request();
  bad.shape = {};  // an allgather without a first dimension
  EXPECT_THROW((void)decode_message(encode(Submitted{{bad}})), Error);
  EXPECT_THROW((void)decode_message(encode(Schedule{{Batch{}}})), Error);
  EXPECT_THROW((void)decode_message(encode(Schedule{{Batch{{"a", "b"}, {{1}}}}})), Error);
}

TEST(Messages, ALongReasonIsClippedNotRefused) {
  const Message message = Schedule{{Rejection{"a", Errc::mismatch, std::string(1 << 20, 'x')}}};
  const auto schedule = std::get<Schedule>(decode_message(encode(message)));
  EXPECT_EQ(std::get<Rejection>(schedule.decisions[0]).message, std::string(64 * 1024, 'x'));
}

}  // namespace
}  // namespace hvd
