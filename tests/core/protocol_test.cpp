// Sequences that the simulator reaches rarely or never, tested one by one.

#include "policy/protocol.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/replay.hpp"

namespace hvd {

namespace detail {

struct StateReader {
  static void begin_at(Protocol& protocol, std::uint32_t epoch) { protocol.epoch_ = epoch; }
};

}  // namespace detail

namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;
using testing::_;
using testing::AllOf;
using testing::Field;
using testing::NiceMock;

const Clock::time_point kStart{};

class Actions : public Protocol::Actions {
 public:
  MOCK_METHOD(void, send, (const std::vector<int>&, const Message&), (override));
  MOCK_METHOD(void, run, (const FusedBatch&), (override));
  MOCK_METHOD(void, carry_out, (const Rejection&), (override));
  MOCK_METHOD(void, carry_out, (const SetAdded&), (override));
  MOCK_METHOD(void, carry_out, (const SetRemoved&), (override));
  MOCK_METHOD(void, carry_out, (const AllJoined&), (override));
  MOCK_METHOD(void, carry_out, (const Freeze&), (override));
  MOCK_METHOD(std::uint64_t, stop_replay, (), (override));
  MOCK_METHOD(void, resume, (const std::vector<std::uint64_t>&), (override));
  MOCK_METHOD(void, stalled, (const Stall&), (override));
  MOCK_METHOD(void, failed, (const Verdict&), (override));
  MOCK_METHOD(void, aborted, (const Abort&), (override));
  MOCK_METHOD(void, shutdown_acknowledged, (), (override));
  MOCK_METHOD(void, slowest, (const Slowest&, bool), (override));
};

Protocol::Settings of_two_ranks() {
  Protocol::Settings settings;
  settings.size = 2;
  settings.detector = {milliseconds(100), milliseconds(2'000), milliseconds(2'000),
                       milliseconds(200)};
  return settings;
}

TEST(Protocol, AcknowledgesTheShutdownWhenAllRanksHaveRequestedIt) {
  NiceMock<Actions> actions;
  Protocol rank0(of_two_ranks(), actions, kStart);
  rank0.shutdown(kStart);
  EXPECT_CALL(actions, shutdown_acknowledged());
  rank0.received({1}, encode(ShutdownRequested{0}), kStart);
}

TEST(Protocol, AShutdownIsNotAcknowledgedBeforeAVerdict) {
  NiceMock<Actions> actions;
  Protocol rank0(of_two_ranks(), actions, kStart);
  EXPECT_CALL(actions, shutdown_acknowledged()).Times(0);
  rank0.collective_failed(Errc::peer_lost, 1, "reset", kStart);  // weak: settles for 200 ms
  rank0.shutdown(kStart);
  rank0.received({1}, encode(ShutdownRequested{0}), kStart + milliseconds(50));
  EXPECT_CALL(actions, failed(AllOf(Field(&Verdict::rank, 1), Field(&Verdict::cause, "reset"))));
  rank0.tick({}, kStart + milliseconds(100));
  rank0.tick({}, kStart + milliseconds(200));
}

// Rank 0 is frozen while another rank crashes. The others must not blame different victims
// meanwhile.
TEST(Protocol, ARankDoesNotBelieveItsBackendWhileRank0IsSilent) {
  NiceMock<Actions> actions;
  Protocol::Settings settings = of_two_ranks();
  settings.rank = 1;
  settings.size = 4;
  Protocol rank1(settings, actions, kStart);
  EXPECT_CALL(actions, send).Times(testing::AnyNumber());  // heartbeats
  EXPECT_CALL(actions, send(std::vector<int>{0}, testing::VariantWith<Suspicion>(_)));
  EXPECT_CALL(actions, failed).Times(0);
  rank1.collective_failed(Errc::peer_lost, 3, "reset", kStart);  // rank 3 may be a victim of rank 2
  Clock::time_point now = kStart;
  while (now < kStart + milliseconds(1'900)) rank1.tick({}, now += milliseconds(100));
  EXPECT_CALL(actions, failed(Field(&Verdict::rank, 0)));
  rank1.tick({}, kStart + milliseconds(2'000));
}

/// Returns the members of a group as a rank announces them.
std::vector<Announcement> group_of(const std::vector<std::string>& names) {
  std::vector<Announcement> members;
  for (const std::string& name : names) {
    Request& request = members.emplace_back().request;
    request.name = name;
    request.group = "g";
    request.group_size = static_cast<std::int32_t>(names.size());
  }
  return members;
}

// If it announced operations after it has refused a freeze, rank 0, which is frozen, would blame
// it.
TEST(Protocol, ARankThatHasRefusedADecisionAnnouncesAndCarriesOutNothingMore) {
  NiceMock<Actions> actions;
  Protocol::Settings settings = of_two_ranks();
  settings.rank = 1;
  Protocol rank1(settings, actions, kStart);
  const auto schedule = [](const std::string& first) {
    return encode(Schedule{{AllJoined{1}, SetAdded{first, 1, {0, 1}}, AllJoined{0}}});
  };
  EXPECT_CALL(actions, carry_out(testing::A<const AllJoined&>())).Times(1);
  EXPECT_CALL(actions, carry_out(testing::A<const SetAdded&>())).WillOnce([&](const SetAdded&) {
    rank1.refused("decided what cannot be", kStart);
  });
  EXPECT_CALL(actions, send(_, testing::VariantWith<Submitted>(_))).Times(0);
  EXPECT_CALL(actions, send(std::vector<int>{0}, testing::VariantWith<Suspicion>(
                                                     AllOf(Field(&Suspicion::code, Errc::protocol),
                                                           Field(&Suspicion::rank, 0)))));
  rank1.received({0}, schedule("a"), kStart);
  rank1.received({0}, schedule("b"), kStart);
  rank1.submitted(group_of({"a"}), kStart);
}

TEST(Protocol, NothingIsDecidedWhileTheScheduleIsFrozen) {
  NiceMock<Actions> actions;
  Protocol::Settings settings = of_two_ranks();
  settings.rank = 1;
  Protocol rank1(settings, actions, kStart);
  FrozenSchedule plan;
  plan.batches.emplace_back().requests.emplace_back().name = "a";
  EXPECT_CALL(actions, carry_out(testing::A<const Rejection&>())).Times(0);
  EXPECT_CALL(actions, failed(Field(&Verdict::rank, 0)));
  rank1.received({0}, encode(Schedule{{Freeze{1, plan}, Rejection{0, "a", Errc::mismatch, ""}}}),
                 kStart);
}

// The other ranks may still announce another operation of that name.
TEST(Protocol, OnlyRanksThatAnnouncedAMemberAreToldThatOthersDoNotHaveIt) {
  NiceMock<Actions> actions;
  Protocol::Settings settings = of_two_ranks();
  settings.size = 3;
  std::map<int, std::set<std::string>> rejected;  // by rank
  ON_CALL(actions, carry_out(testing::A<const Rejection&>()))
      .WillByDefault([&](const Rejection& rejection) { rejected[0].insert(rejection.name); });
  ON_CALL(actions, send).WillByDefault([&](const std::vector<int>& to, const Message& message) {
    for (const Decision& decision : std::get<Schedule>(message).decisions) {
      for (const int rank : to) rejected[rank].insert(std::get<Rejection>(decision).name);
    }
  });
  Protocol rank0(settings, actions, kStart);
  rank0.submitted(group_of({"a", "b"}), kStart);
  rank0.received({1}, encode(Submitted{0, group_of({"a", "c"})}), kStart);
  EXPECT_TRUE(rejected.empty());
  rank0.received({2}, encode(Submitted{0, group_of({"a", "b"})}), kStart);
  using Names = std::set<std::string>;
  EXPECT_EQ(rejected[0], (Names{"a", "b"}));
  EXPECT_EQ(rejected[1], (Names{"a", "c"}));
  EXPECT_EQ(rejected[2], (Names{"a", "b"}));
}

TEST(Protocol, AStallIsReportedOnceForEveryPeriodThatItHasLasted) {
  NiceMock<Actions> actions;
  Protocol::Settings settings = of_two_ranks();
  settings.stall_warn = milliseconds(1'000);
  Protocol rank0(settings, actions, kStart);
  Clock::time_point now = kStart;
  std::vector<std::pair<std::string, milliseconds::rep>> reported;  // with the time
  ON_CALL(actions, stalled).WillByDefault([&](const Stall& stall) {
    reported.emplace_back(stall.name,
                          std::chrono::duration_cast<milliseconds>(now - kStart).count());
  });
  const std::map<milliseconds, std::string> submissions{{milliseconds(300), "a"},
                                                        {milliseconds(700), "b"}};
  while (now < kStart + milliseconds(2'500)) {
    now += milliseconds(100);
    const auto name = submissions.find(std::chrono::duration_cast<milliseconds>(now - kStart));
    if (name != submissions.end()) {
      std::vector<Announcement> one(1);
      one.front().request.name = name->second;
      rank0.submitted(std::move(one), now);
    }
    rank0.received({1}, encode(Heartbeat{}), now);
    rank0.tick({}, now);
  }
  EXPECT_THAT(reported, testing::ElementsAre(testing::Pair("a", 1'300), testing::Pair("b", 1'700),
                                             testing::Pair("a", 2'300)));
}

// The numbers of a schedule hold its epoch. They must not begin again.
TEST(Protocol, AJobWithoutEpochsNegotiates) {
  for (const std::uint32_t epoch : {kMostEpochs - 2, kMostEpochs - 1}) {
    NiceMock<Actions> actions;
    Protocol::Settings settings;
    settings.freeze_after = 1;
    Protocol rank0(settings, actions, kStart);
    StateReader::begin_at(rank0, epoch);
    bool frozen = false;
    ON_CALL(actions, carry_out(testing::A<const Freeze&>()))
        .WillByDefault([&](const Freeze& freeze) {
          frozen = true;
          EXPECT_GT(sequence_of({freeze.epoch, 0, 0}, 1), sequence_of({epoch, 0, 0}, 1));
        });
    for (int i = 0; i < 10 && !frozen; ++i) {
      std::vector<Announcement> one(1);
      one.front().request.name = "x";
      rank0.submitted(std::move(one), kStart);
      if (!frozen) rank0.batch_done(kStart);
    }
    EXPECT_EQ(frozen, epoch + 1 < kMostEpochs);
  }
}

}  // namespace
}  // namespace hvd
