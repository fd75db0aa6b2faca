// Tests a lost rank's shard in the next generation, also when a step was decided that only some of
// the ranks had made. Ranks are threads, and the next generation has the same ones.
#include "sharded/shard_mirror.hpp"

#include <deque>
#include <optional>
#include <vector>

#include <hvd_test/errors.hpp>

#include "../contexts.hpp"

namespace hvd::shard_mirror_test {
namespace {

using namespace test;    // NOLINT: a test
using namespace detail;  // NOLINT: a test
using torch::optim::Adam;

constexpr int kRanks = 3;

/// A model whose bias is frozen. Weight decay would move it, if it were not kept.
torch::nn::Linear make_model() {
  torch::nn::Linear model(8, 5);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model->parameters()) {
    parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
  }
  model->bias.requires_grad_(false);
  return model;
}

torch::optim::AdamOptions options() { return torch::optim::AdamOptions(0.1).weight_decay(0.1); }

torch::Tensor gradient_of(const torch::nn::Linear& model, int step) {
  return torch::cos(torch::arange(model->weight.numel()) + step).view(model->weight.sizes());
}

/// Returns the parameters after so many steps of one process.
torch::nn::Linear alone(int steps) {
  torch::nn::Linear model = make_model();
  Adam adam({model->weight}, options());
  for (int step = 0; step < steps; ++step) {
    model->weight.mutable_grad() = gradient_of(model, step);
    adam.step();
  }
  return model;
}

/// One rank, whose parameters are in one bucket.
class Rank {
 public:
  explicit Rank(Context& context) : context_(context) {
    begin_division();
    adam_.emplace(parts(), options());
    mirror_.emplace(
        *adam_, [this] { adam_->step(); }, count_);
    mirror_->attach(buckets_, rank());
    mirror_->begin(1);
  }

  /// Reduces the gradients, of which rank 0 has all.
  void prepare() {
    const torch::NoGradGuard no_grad;
    mirror_->begin_step();
    const torch::Tensor gradient = gradient_of(model_, step_++);
    bucket().add(0, context_.rank() == 0 ? gradient : torch::zeros_like(gradient), 1);
    bucket().send();
    bucket().update_parts();
    bucket().send_to_mirror();
    static_cast<void>(bucket().gradients());
  }
  /// This rank loses the others before it knows whether the step is decided.
  void lose_the_vote() {
    EXPECT_EQ(
        error_of([&] { mirror_->decide([] { throw Error(Errc::peer_lost, "lost"); }); }).code(),
        Errc::peer_lost);
  }
  /// Makes the step without other ranks.
  void make() {
    const torch::NoGradGuard no_grad;
    mirror_->decide([] {});
    const std::vector<torch::Tensor> gradients = bucket().gradients();
    std::vector<torch::Tensor> before;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      before.push_back(bucket().parts()[i].values.clone());
      bucket().parts()[i].values.mutable_grad() = gradients[i];
    }
    adam_->step();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      bucket().parts()[i].values.mutable_grad().reset();
      bucket().keep_frozen(bucket().parts()[i], before[i]);
    }
  }
  void gather() {
    bucket().gather();
    bucket().finish();
    mirror_->gathered();
  }
  /// Begins the next generation with these shards.
  void go_on(bool is_behind, const std::vector<ShardSource>& shards) {
    mirror_->detach();
    held_ = mirror_->held();
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : model_->parameters()) parameter.fill_(-5);
    begin_division();
    adam_->param_groups()[0].params() = parts();
    adam_->state().clear();
    mirror_->attach(buckets_, rank());
    mirror_->go_on_with(division_, is_behind);
    mirror_->assemble(context_, shards);
    mirror_->begin(++division_);
  }
  void step() {
    prepare();
    make();
    gather();
  }

  void forget_step() { --step_; }
  [[nodiscard]] const Divisions& held() const { return held_; }
  void expect_steps(int steps) const {
    const torch::nn::Linear expected = alone(steps);
    EXPECT_TRUE(torch::equal(model_->weight, expected->weight)) << steps << " steps";
    EXPECT_TRUE(torch::equal(model_->bias, expected->bias)) << steps << " steps";
  }

 private:
  void begin_division() {
    buckets_.clear();
    buckets_.emplace_back(
        context_, placement_, "bucket", 0, options_, rank(),
        std::vector<NamedTensors::Item>{{"weight", model_->weight}, {"bias", model_->bias}}, true);
  }
  [[nodiscard]] RankInSet rank() const { return {context_.rank(), context_.size()}; }
  [[nodiscard]] ShardBucket& bucket() { return buckets_.front(); }
  [[nodiscard]] std::vector<torch::Tensor> parts() {
    std::vector<torch::Tensor> all;
    for (const ShardPart& part : bucket().parts()) all.push_back(part.values);
    return all;
  }

  Context& context_;
  const ShardedOptimizerOptions options_{.op = ReduceOp::sum};
  GradientPlacement placement_{GradientMemory::as_is, context_, {}};
  torch::nn::Linear model_ = make_model();
  std::deque<ShardBucket> buckets_;
  std::optional<Adam> adam_;
  StepCount count_;
  std::optional<ShardMirror> mirror_;
  std::int64_t division_ = 1;
  Divisions held_;
  int step_ = 0;
};

const std::vector<ShardSource> kOwners{{0, false}, {1, false}, {2, false}};
/// The shard of each rank, from the rank after it.
const std::vector<ShardSource> kMirrors{{1, true}, {2, true}, {0, true}};

TEST(ShardMirror, EveryShardIsOnTwoRanksWithItsState) {
  on_ranks(kRanks, [](Context& context) {
    Rank rank(context);
    for (int step = 0; step < 3; ++step) rank.step();
    rank.go_on(false, kMirrors);
    rank.expect_steps(3);
    rank.step();
    rank.go_on(false, kMirrors);
    rank.step();
    rank.expect_steps(5);
  });
}

// Rank 1 knows that the step is decided, and has made it. It was lost to the others before they
// knew. Nothing of the step was gathered. Then the shards of rank 0 and of rank 2 come from others.
TEST(ShardMirror, AStepThatAnotherRankHasMadeIsMade) {
  on_ranks(kRanks, [](Context& context) {
    Rank rank(context);
    rank.step();
    rank.step();
    rank.prepare();
    const bool is_behind = context.rank() != 1;
    is_behind ? rank.lose_the_vote() : rank.make();
    rank.go_on(is_behind, kMirrors);
    ASSERT_EQ(rank.held().size(), 1U);
    EXPECT_EQ(rank.held().front().steps, is_behind ? 2 : 3);
    EXPECT_EQ(rank.held().front().pending, is_behind ? 1 : 0);
    rank.expect_steps(3);
    rank.step();
    rank.expect_steps(4);
    rank.go_on(false, kOwners);
    rank.step();
    rank.expect_steps(5);
  });
}

TEST(ShardMirror, AStepThatNoRankHasMadeIsMadeAgain) {
  on_ranks(kRanks, [](Context& context) {
    Rank rank(context);
    rank.step();
    rank.step();
    rank.prepare();
    rank.lose_the_vote();
    rank.forget_step();
    rank.go_on(false, kMirrors);
    rank.expect_steps(2);
    rank.step();
    rank.expect_steps(3);
  });
}

// Only the ranks know their parts of the second step, because its parameters were not gathered.
TEST(ShardMirror, WhatWasNotGatheredIsTakenFromTheParts) {
  on_ranks(kRanks, [](Context& context) {
    Rank rank(context);
    rank.step();
    rank.prepare();
    rank.make();
    rank.go_on(false, kOwners);
    rank.expect_steps(2);
  });
}

}  // namespace
}  // namespace hvd::shard_mirror_test
