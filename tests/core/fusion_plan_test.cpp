#include "policy/fusion_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using testing::ElementsAre;

ReadyTensor tensor(const std::string& name, std::int64_t elements) {
  ReadyTensor ready;
  ready.request.name = name;
  ready.request.shape = {elements};
  return ready;
}

std::vector<std::string> take(std::deque<ReadyTensor>& ready, std::size_t threshold) {
  std::vector<std::string> names;
  for (const ReadyTensor& one : take_fused(ready, threshold)) names.push_back(one.request.name);
  return names;
}

TEST(FusionPlan, FillsToTheThresholdAndPassesOverWhatDoesNotFit) {
  std::deque<ReadyTensor> ready{tensor("a", 10), tensor("big", 100), tensor("b", 10),
                                tensor("c", 5), tensor("d", 1)};
  EXPECT_THAT(take(ready, 100), ElementsAre("a", "b", "c"));  // 25 elements are 100 bytes
  EXPECT_THAT(take(ready, 100), ElementsAre("big"));          // alone although larger
  EXPECT_THAT(take(ready, 100), ElementsAre("d"));
  EXPECT_TRUE(ready.empty());
}

TEST(FusionPlan, ZeroThresholdTurnsFusionOff) {
  std::deque<ReadyTensor> ready{tensor("a", 0), tensor("b", 0)};
  EXPECT_THAT(take(ready, 0), ElementsAre("a"));
  EXPECT_THAT(take(ready, 0), ElementsAre("b"));
}

TEST(FusionPlan, OnlyLikeRunsWithLike) {
  using Change = void (*)(Request&);
  const std::vector<Change> changes{
      [](Request& r) { r.kind = OpKind::broadcast; },
      [](Request& r) { r.dtype = DType::f64; },
      [](Request& r) { r.op = ReduceOp::min; },
      [](Request& r) {
        r.device = {Device::Kind::cuda, 0};
      },
      [](Request& r) { r.root = 1; },
      [](Request& r) { r.prescale = 0.5; },
      [](Request& r) { r.postscale = 0.5; },
      [](Request& r) { r.f32_memory = true; },
      [](Request& r) { r.process_set = 1; },
  };
  for (const Change change : changes) {
    std::deque<ReadyTensor> ready{tensor("a", 1), tensor("other", 1), tensor("b", 1)};
    change(ready[1].request);
    EXPECT_THAT(take(ready, 1024), ElementsAre("a", "b"));
    EXPECT_THAT(take(ready, 1024), ElementsAre("other"));
  }
}

TEST(FusionPlan, DeviceIndexMayDiffer) {
  std::deque<ReadyTensor> ready{tensor("a", 1), tensor("b", 1)};
  ready[0].request.device = {Device::Kind::cuda, 0};
  ready[1].request.device = {Device::Kind::cuda, 1};
  EXPECT_THAT(take(ready, 1024), ElementsAre("a", "b"));
}

TEST(FusionPlan, BarriersRunAlone) {
  std::deque<ReadyTensor> ready{tensor("a", 0), tensor("b", 0)};
  for (ReadyTensor& one : ready) one.request.kind = OpKind::barrier;
  EXPECT_THAT(take(ready, 1024), ElementsAre("a"));
}

TEST(FusionPlan, AnAllgatherCountsAllRanksRows) {
  ReadyTensor gather = tensor("g", 0);
  gather.request.kind = OpKind::allgather;
  gather.request.shape = {2, 3};
  gather.rows = {{2}, {0}, {5}};
  EXPECT_EQ(bytes_of(gather), 7U * 3U * 4U);
}

}  // namespace
}  // namespace hvd
