#include "policy/schedule_learner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using testing::ElementsAre;

ReadyTensor tensor(const std::string& name, std::int64_t elements = 1,
                   std::vector<std::uint32_t> segments = {0, 0}) {
  ReadyTensor ready;
  ready.request.name = name;
  ready.request.shape = {elements};
  ready.segments = std::move(segments);
  return ready;
}

void observe(ScheduleLearner& learner, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const ReadyTensor one = tensor(name);
    learner.observe({&one, 1});
  }
}

std::vector<std::vector<std::string>> names(const std::vector<FusedTensors>& cycle) {
  std::vector<std::vector<std::string>> all;
  for (const FusedTensors& bucket : cycle) {
    all.emplace_back();
    for (const ReadyTensor& one : bucket) all.back().push_back(one.request.name);
  }
  return all;
}

ScheduleLearner learner_of(int repetitions) {
  return ScheduleLearner({repetitions, usual_sizes(std::size_t{1} << 20)});
}

TEST(ScheduleLearner, LearnsAtTheEndOfTheLastOfTheIdenticalRoundsInAnyOrder) {
  ScheduleLearner learner = learner_of(3);
  observe(learner, {"warm", "a", "b"});
  observe(learner, {"a", "b"});
  observe(learner, {"b", "a"});
  EXPECT_FALSE(learner.learned());
  observe(learner, {"a"});
  EXPECT_FALSE(learner.learned());
  observe(learner, {"b"});
  ASSERT_TRUE(learner.learned());
  EXPECT_THAT(names(*learner.learned()), ElementsAre(ElementsAre("a", "b")));
}

TEST(ScheduleLearner, LearnsPeriodsOfSeveralRounds) {
  ScheduleLearner learner = learner_of(2);
  for (int i = 0; i < 2; ++i) {
    observe(learner, {"d", "e"});
    observe(learner, {"d", "e", "g"});
    EXPECT_EQ(learner.learned().has_value(), i == 1);
  }
  EXPECT_THAT(names(*learner.learned()),
              ElementsAre(ElementsAre("d", "e"), ElementsAre("d", "e", "g")));
}

TEST(ScheduleLearner, AChangedTensorStartsOver) {
  ScheduleLearner learner = learner_of(2);
  observe(learner, {"a", "b"});
  const ReadyTensor other = tensor("a", 2);
  learner.observe({&other, 1});
  observe(learner, {"b"});
  EXPECT_FALSE(learner.learned());
  learner.observe({&other, 1});
  observe(learner, {"b"});
  EXPECT_TRUE(learner.learned());
}

TEST(ScheduleLearner, ACycleBeginsWhereTheRanksHadReceivedAResult) {
  ScheduleLearner learner = learner_of(2);
  // The ranks wait for "a" and "b" at the end of each step, and then submit "metric", whose result
  // they read one step later.
  for (std::uint32_t step = 0; step < 3; ++step) {
    EXPECT_FALSE(learner.learned());
    for (const std::string name : {"a", "b", "metric"}) {
      const std::uint32_t segment = name == "metric" ? step + 1 : step;
      const ReadyTensor one = tensor(name, 1, {segment, segment});
      if (step == 2 && name == "metric") break;
      learner.observe({&one, 1});
    }
  }
  ASSERT_TRUE(learner.learned());
  EXPECT_THAT(names(*learner.learned()), ElementsAre(ElementsAre("metric", "a", "b")));
}

TEST(ScheduleLearner, ZeroRepetitionsNeverLearn) {
  ScheduleLearner learner = learner_of(0);
  for (int i = 0; i < 100; ++i) observe(learner, {"a"});
  EXPECT_FALSE(learner.learned());
}

TEST(ScheduleLearner, AKnownCycleIsFrozenAgainAfterOneRepetition) {
  ScheduleLearner learner = learner_of(3);
  for (int i = 0; i < 3; ++i) observe(learner, {"a", "b", "c"});
  learner.frozen(*learner.learned());
  learner.thawed(10, {});
  observe(learner, {"metric"});
  observe(learner, {"a", "b", "c"});
  EXPECT_FALSE(learner.learned()) << "this round had a metric";
  observe(learner, {"a", "b"});
  EXPECT_FALSE(learner.learned());
  observe(learner, {"c"});
  EXPECT_TRUE(learner.learned());
}

TEST(ScheduleLearner, AThawInTheMiddleOfACycleKeepsItsBeginning) {
  ScheduleLearner learner = learner_of(2);
  const ReadyTensor big = tensor("big", 1 << 20);
  for (int i = 0; i < 2; ++i) {
    learner.observe({&big, 1});
    observe(learner, {"a"});
  }
  ASSERT_TRUE(learner.learned());
  ASSERT_EQ(learner.learned()->size(), 2U);
  learner.frozen(*learner.learned());
  const std::size_t finished[] = {0};
  learner.thawed(10, finished);
  EXPECT_FALSE(learner.learned());
  observe(learner, {"a"});
  EXPECT_TRUE(learner.learned()) << "the cycle is whole";
}

TEST(ScheduleLearner, WhatDoesNotLastIsTriedLaterAndLater) {
  ScheduleLearner learner = learner_of(2);
  int last = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    int rounds = 0;
    do {
      observe(learner, {"a", "b"});
      ++rounds;
      ASSERT_LE(rounds, 200);
    } while (!learner.learned());
    EXPECT_GE(rounds, last);
    last = rounds;
    learner.frozen(*learner.learned());
    learner.thawed(0, {});
  }
  EXPECT_GE(last, 16);
}

TEST(ScheduleLearner, RoundsWithoutEndAreForgotten) {
  ScheduleLearner learner = learner_of(2);
  for (std::size_t i = 0; i < 3 * ScheduleLearner::kMaxRound; ++i) {
    observe(learner, {"name" + std::to_string(i)});
  }
  for (int i = 0; i < 5; ++i) observe(learner, {"a", "b"});
  EXPECT_TRUE(learner.learned());
}

TEST(Buckets, OnlyWhatDidNotWaitForEachOtherSharesABucket) {
  const auto cycle = make_buckets({tensor("a", 1, {0, 0}), tensor("b", 1, {1, 0}),
                                   tensor("c", 1, {1, 0}), tensor("d", 1, {0, 0})},
                                  usual_sizes(1 << 20));
  // Both ranks submitted a and d together. On rank 0, b and c came after a result.
  EXPECT_THAT(names(cycle), ElementsAre(ElementsAre("b", "c"), ElementsAre("a", "d")));
}

TEST(Buckets, TheFirstAndTheLastAreSmallAndNoneExceedsTheThreshold) {
  std::vector<ReadyTensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(tensor("t" + std::to_string(i), 256));  // 1 KiB
  const auto cycle = make_buckets(tensors, usual_sizes(32 << 10));
  std::vector<std::size_t> sizes;
  for (const FusedTensors& bucket : cycle) sizes.push_back(bucket.size());
  EXPECT_THAT(sizes, ElementsAre(2, 32, 32, 32, 2));
  EXPECT_EQ(cycle.front().front().request.name, "t0");
  EXPECT_EQ(cycle.back().back().request.name, "t99");
}

TEST(Buckets, WithoutAnEdgeOnlyTheLastIsSmallerThanTheOthers) {
  std::vector<ReadyTensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(tensor("t" + std::to_string(i), 256));  // 1 KiB
  std::vector<std::size_t> sizes;
  for (const FusedTensors& bucket : make_buckets(tensors, {32 << 10, 0})) {
    sizes.push_back(bucket.size());
  }
  EXPECT_THAT(sizes, ElementsAre(32, 32, 32, 4));
}

TEST(Buckets, AThresholdOfZeroKeepsTensorsApart) {
  EXPECT_EQ(make_buckets({tensor("a"), tensor("b")}, {}).size(), 2U);
}

TEST(Buckets, TensorsBeyondTheThresholdAreAlone) {
  const auto cycle =
      make_buckets({tensor("a", 10), tensor("big", 1000), tensor("b", 10)}, {100, 0});
  for (const FusedTensors& bucket : cycle) EXPECT_EQ(bucket.size(), 1U);
}

}  // namespace
}  // namespace hvd
