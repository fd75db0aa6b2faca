// Sequences that the simulator comes by once in a million runs, played one by one.

#include "coordinator/protocol.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using testing::_;
using testing::AllOf;
using testing::Field;
using testing::NiceMock;

const Clock::time_point kStart{};

class Actions : public Protocol::Actions {
 public:
  MOCK_METHOD(void, send, (int, const Message&), (override));
  MOCK_METHOD(void, run, (const Batch&), (override));
  MOCK_METHOD(void, carry_out, (const Rejection&), (override));
  MOCK_METHOD(void, carry_out, (const SetAdded&), (override));
  MOCK_METHOD(void, carry_out, (const SetRemoved&), (override));
  MOCK_METHOD(void, carry_out, (const AllJoined&), (override));
  MOCK_METHOD(void, carry_out, (const Freeze&), (override));
  MOCK_METHOD(std::uint64_t, stop_replay, (), (override));
  MOCK_METHOD(void, resume, (const std::vector<std::uint64_t>&), (override));
  MOCK_METHOD(void, stalled, (const Stall&), (override));
  MOCK_METHOD(void, failed, (const Verdict&), (override));
  MOCK_METHOD(void, poisoned, (const Poison&), (override));
  MOCK_METHOD(void, farewell, (), (override));
};

Protocol::Settings of_two_ranks() {
  Protocol::Settings settings;
  settings.size = 2;
  settings.detector = {milliseconds(100), milliseconds(2'000), milliseconds(200)};
  return settings;
}

TEST(Protocol, SaysFarewellWhenAllHaveSaidGoodbye) {
  NiceMock<Actions> actions;
  Protocol rank0(of_two_ranks(), actions, kStart);
  rank0.goodbye(kStart);
  EXPECT_CALL(actions, farewell());
  rank0.received(1, encode(Goodbye{0}), kStart);
}

TEST(Protocol, AFarewellDoesNotOvertakeAVerdict) {
  NiceMock<Actions> actions;
  Protocol rank0(of_two_ranks(), actions, kStart);
  EXPECT_CALL(actions, farewell()).Times(0);
  rank0.collective_failed(Errc::peer_lost, 1, "reset", kStart);  // weak: settles for 200 ms
  rank0.goodbye(kStart);
  rank0.received(1, encode(Goodbye{0}), kStart + milliseconds(50));
  EXPECT_CALL(actions, failed(AllOf(Field(&Verdict::rank, 1), Field(&Verdict::cause, "reset"))));
  rank0.tick(kStart + milliseconds(100));
  rank0.tick(kStart + milliseconds(200));
}

}  // namespace
}  // namespace hvd
