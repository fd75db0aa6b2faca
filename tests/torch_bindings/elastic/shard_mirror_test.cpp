// Tests a lost rank's shard in the next generation, also when a step was decided that only some of
// the ranks had made. Workers are threads.
#include "sharded/shard_mirror.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include <hvd_test/errors.hpp>

#include "../contexts.hpp"
#include "elastic/mirrored_shards.hpp"
#include "elastic/state_parts.hpp"

namespace hvd::shard_mirror_test {
namespace {

using namespace test;    // NOLINT: a test
using namespace detail;  // NOLINT: a test
using torch::optim::Adam;

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

/// An optimizer of the parts, which are mirrored.
class PartsAdam final : public Adam, public DividesState {
 public:
  explicit PartsAdam(const torch::Tensor& parameter) : Adam({parameter}, options()) {}
  void save_on_all_ranks(torch::serialize::OutputArchive&) const override { ADD_FAILURE(); }
  ShardMirror* mirror() const noexcept override { return &mirror_; }

 private:
  StepCount count_;
  mutable ShardMirror mirror_{*this, [this] { step(); }, count_};
};

/// A worker, whose parameters are in one bucket.
class Worker {
 public:
  /// Begins a generation, in which `context` is this worker's.
  void enter(Context& context) {
    const torch::NoGradGuard no_grad;
    context_ = &context;
    placement_.emplace(GradientMemory::as_is, context, std::vector<torch::Tensor>{});
    const RankInSet rank{context.rank(), context.size()};
    const std::vector<Divisions> divisions = shards_.gather(context);
    std::vector<Standing> standings(divisions.size(), {.kind = Standing::whole, .certain = 1});
    const StateSource source = choose_source(standings, divisions);
    EXPECT_FALSE(source.shards_lost);
    if (source.division != 0) {
      for (torch::Tensor& parameter : model_->parameters()) parameter.fill_(-5);
    }
    buckets_.emplace_back(
        context, *placement_, "bucket", 0, options_, rank,
        std::vector<NamedTensors::Item>{{"weight", model_->weight}, {"bias", model_->bias}}, true);
    auto& parameters = adam_.param_groups()[0].params();
    parameters.clear();
    for (const ShardPart& part : bucket().parts()) parameters.push_back(part.values);
    adam_.state().clear();
    mirror().attach(buckets_, rank);
    shards_.go_on_with(source);
    shards_.assemble(context, source);
    shards_.begin(source);
  }
  /// Ends the generation.
  void leave() {
    mirror().detach();
    buckets_.clear();
    held_ = mirror().held();
  }

  /// Reduces the gradients, of which rank 0 has all.
  void prepare(int step) {
    const torch::NoGradGuard no_grad;
    mirror().begin_step();
    const torch::Tensor gradient = gradient_of(model_, step);
    bucket().add(0, context_->rank() == 0 ? gradient : torch::zeros_like(gradient), 1);
    bucket().send();
    bucket().update_parts();
    bucket().send_to_mirror();
    static_cast<void>(bucket().gradients());
  }
  /// This rank loses the others before it knows whether the step is decided.
  void lose_the_vote() {
    EXPECT_EQ(
        error_of([&] { mirror().decide([] { throw Error(Errc::peer_lost, "lost"); }); }).code(),
        Errc::peer_lost);
  }
  /// Makes the step without other ranks.
  void make() {
    const torch::NoGradGuard no_grad;
    mirror().decide([] {});
    const std::vector<torch::Tensor> gradients = bucket().gradients();
    std::vector<torch::Tensor> before;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      before.push_back(bucket().parts()[i].values.clone());
      bucket().parts()[i].values.mutable_grad() = gradients[i];
    }
    adam_.step();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      bucket().parts()[i].values.mutable_grad().reset();
      bucket().keep_frozen(bucket().parts()[i], before[i]);
    }
  }
  void gather() {
    bucket().gather();
    bucket().finish();
    mirror().gathered();
  }
  void step(int step) {
    prepare(step);
    make();
    gather();
  }

  /// Returns what the worker had when the last generation ended.
  [[nodiscard]] const Divisions& held() const { return held_; }
  void expect_steps(int steps) const {
    const torch::nn::Linear expected = alone(steps);
    EXPECT_TRUE(torch::equal(model_->weight, expected->weight)) << steps << " steps";
    EXPECT_TRUE(torch::equal(model_->bias, expected->bias)) << steps << " steps";
  }

 private:
  [[nodiscard]] ShardMirror& mirror() { return *adam_.mirror(); }
  [[nodiscard]] ShardBucket& bucket() { return buckets_.front(); }

  const ShardedOptimizerOptions options_{.op = ReduceOp::sum};
  torch::nn::Linear model_ = make_model();
  PartsAdam adam_{model_->weight};
  const StateParts state_{{}, {&adam_}, {}, {}, {}};
  MirroredShards shards_{state_};
  Context* context_ = nullptr;
  std::optional<GradientPlacement> placement_;
  std::deque<ShardBucket> buckets_;
  Divisions held_;
};

/// A job whose worker `i` of a generation is its rank `i`. A worker that is in no later generation
/// is lost, and one that was in no earlier generation is a newcomer.
class ShardMirrorTest : public testing::Test {
 protected:
  void generation(const std::vector<int>& numbers,
                  const std::function<void(int number, Worker& worker)>& body) {
    while (std::ssize(workers_) <= *std::max_element(numbers.begin(), numbers.end())) {
      workers_.emplace_back();
    }
    on_ranks(static_cast<int>(numbers.size()), [&](Context& context) {
      const int number = numbers[static_cast<std::size_t>(context.rank())];
      Worker& worker = workers_[static_cast<std::size_t>(number)];
      worker.enter(context);
      body(number, worker);
      worker.leave();
    });
  }

  std::deque<Worker> workers_;
};

TEST_F(ShardMirrorTest, EveryShardIsOnTwoRanksWithItsState) {
  generation({0, 1, 2}, [](int, Worker& worker) {
    for (const int step : {0, 1, 2}) worker.step(step);
  });
  for (const std::vector<int>& numbers : {std::vector<int>{0, 1, 3}, {4, 1, 3}, {4, 5, 3}}) {
    generation(numbers, [](int, Worker& worker) { worker.expect_steps(3); });
  }
  generation({4, 3}, [](int, Worker& worker) {
    worker.step(3);
    worker.expect_steps(4);
  });
}

// Worker 1 knows that the step is decided, and has made it. It was lost to the others before they
// knew. Nothing of the step was gathered.
TEST_F(ShardMirrorTest, AStepThatAnotherRankHasMadeIsMade) {
  generation({0, 1, 2}, [](int number, Worker& worker) {
    worker.step(0);
    worker.step(1);
    worker.prepare(2);
    number == 1 ? worker.make() : worker.lose_the_vote();
  });
  for (const int number : {0, 1, 2}) {
    const Divisions& held = workers_[static_cast<std::size_t>(number)].held();
    ASSERT_EQ(held.size(), 1U);
    EXPECT_EQ(held.front().steps, number == 1 ? 3 : 2);
    EXPECT_EQ(held.front().pending, number == 1 ? 0 : 1);
  }
  generation({0, 1, 3}, [](int, Worker& worker) {
    worker.expect_steps(3);
    worker.step(3);
    worker.expect_steps(4);
  });
  generation({3, 1}, [](int, Worker& worker) {
    worker.step(4);
    worker.expect_steps(5);
  });
}

TEST_F(ShardMirrorTest, AStepThatNoRankHasMadeIsMadeAgain) {
  generation({0, 1, 2}, [](int, Worker& worker) {
    worker.step(0);
    worker.step(1);
    worker.prepare(2);
    worker.lose_the_vote();
  });
  generation({0, 2}, [](int, Worker& worker) {
    worker.expect_steps(2);
    worker.step(2);
    worker.expect_steps(3);
  });
}

// Only the ranks know their parts of the second step, because its parameters were not gathered.
TEST_F(ShardMirrorTest, WhatWasNotGatheredIsTakenFromTheParts) {
  generation({0, 1, 2}, [](int, Worker& worker) {
    worker.step(0);
    worker.prepare(1);
    worker.make();
  });
  generation({0, 1, 2}, [](int, Worker& worker) { worker.expect_steps(2); });
}

// In the third generation worker 1 has two divisions, by three ranks and by four, and the newcomers
// of the second have only the one by four.
TEST_F(ShardMirrorTest, DivisionsOfGenerationsWithoutAStepAreToldApart) {
  generation({0, 1, 2}, [](int, Worker& worker) { worker.step(0); });
  generation({0, 1, 3, 4}, [](int, Worker& worker) { worker.expect_steps(1); });
  generation({1, 3, 4}, [](int, Worker& worker) {
    worker.expect_steps(1);
    worker.step(1);
    worker.expect_steps(2);
  });
}

}  // namespace
}  // namespace hvd::shard_mirror_test
