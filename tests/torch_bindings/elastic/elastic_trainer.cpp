// A worker of an elastic job that trains. Its model counts how often each example was used: the
// gradient of weight i is -1 for each use of example i, and the learning rate is 1. Its arguments:
//   until=GENERATION   its function returns at the end of an epoch of this or a later generation
//   optimizer=KIND     wrapped, own (DistributedDataParallel), backward (step_in_backward), adam,
//                      scaled, which averages and has the number of ranks as its rate, or
//                      sharded, which also trains a second model with a ShardedOptimizer of Adam,
//                      or mirrored, which does so with the option mirror, and trains a third one
//                      with momentum
//   commit=N           it commits after every N steps
//   by_commit          it takes examples without a sampler and ends no iteration
//   early              it begins to train before there are ranks
//   restore            after the seventh step of the first generation it goes back to a commit
//   at=STEP            the step of a generation in which actions take place, 5 by default
//   WORKER@GENERATION=PLACE   where that worker kills itself in that step, or "terminate", where it
//                      gets SIGTERM, or "op:N", where the N-th operation of LibTorch in its calls
//                      of step() kills it, or the end of the last call
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/record_function.h>

#include <hvd/torch.hpp>

namespace {

constexpr std::int64_t kExamples = 240;
constexpr std::size_t kBatch = 4;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("wrong " + what);
}

struct Plan {
  unsigned until = 1;
  int worker = std::atoi(std::getenv("TEST_WORKER"));
  int commit = 0;
  int at = 5;
  std::string optimizer = "plain";
  std::vector<std::string> actions;

  explicit Plan(std::vector<std::string> arguments) : actions(std::move(arguments)) {
    for (const std::string& action : actions) {
      if (action.rfind("until=", 0) == 0)
        until = static_cast<unsigned>(std::stoul(action.substr(6)));
      if (action.rfind("commit=", 0) == 0) commit = std::stoi(action.substr(7));
      if (action.rfind("at=", 0) == 0) at = std::stoi(action.substr(3));
      if (action.rfind("optimizer=", 0) == 0) optimizer = action.substr(10);
    }
  }
  [[nodiscard]] bool contains(const std::string& word) const {
    return std::find(actions.begin(), actions.end(), word) != actions.end();
  }
  /// Returns whether this worker has this action in this generation.
  [[nodiscard]] bool has(const std::string& place) const {
    return contains(std::to_string(worker) + "@" + std::to_string(hvd::elastic::generation()) +
                    "=" + place);
  }
  void die_at(const std::string& place, int step) const {
    if (step == at && has(place)) ::raise(SIGKILL);
    if (step == at && place == "after_record" && has("terminate")) ::raise(SIGTERM);
  }
  /// Returns the N of this worker's "op:N" in this generation, or 0.
  [[nodiscard]] int operation() const {
    const std::string begin =
        std::to_string(worker) + "@" + std::to_string(hvd::elastic::generation()) + "=op:";
    for (const std::string& action : actions) {
      if (action.rfind(begin, 0) == 0) return std::stoi(action.substr(begin.size()));
    }
    return 0;
  }
};

/// Kills the process in one of the next operations of LibTorch on this thread.
class Killer {
 public:
  static void attach() {
    at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction&)
                                       -> std::unique_ptr<at::ObserverContext> {
          ++seen;
          if (deadly > 0 && seen == deadly) ::raise(SIGKILL);
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  static inline int seen = 0;
  static inline int deadly = 0;
};

struct NetImpl : torch::nn::Module {
  torch::Tensor weight;
  torch::nn::Linear layer{8, 8};
  torch::nn::BatchNorm1d norm{8};

  NetImpl() {
    weight = register_parameter("weight", torch::zeros({kExamples}));
    register_module("layer", layer);
    register_module("norm", norm);
  }
  torch::Tensor loss(const torch::Tensor& batch) {
    const torch::Tensor input = batch.to(torch::kFloat32).view({-1, 1}).expand({-1, 8});
    return norm(layer(input)).square().mean() - weight.index({batch}).sum();
  }
};
TORCH_MODULE(Net);

/// A variable that is saved with torch::save, and whose saving can kill the worker.
struct Saved {
  const Plan* plan;
  std::int64_t steps = 0;
};

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& to, const Saved& it) {
  // The source takes a snapshot before it sends, and has sent the parameters when it saves again.
  static int saved = 0;
  if (it.plan->has("send") && ++saved == 2) ::raise(SIGKILL);
  to.write("steps", it.steps);
  return to;
}
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& from, Saved& it) {
  c10::IValue value;
  from.read("steps", value);
  it.steps = value.toInt();
  if (it.plan->has("receive")) ::raise(SIGKILL);
  return from;
}

std::string digest_of(const torch::nn::Module& module) {
  std::uint64_t digest = 14695981039346656037ULL;  // FNV-1a
  for (const torch::Tensor& tensor : module.parameters()) {
    const torch::Tensor values = tensor.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
    for (std::size_t i = 0; i < values.nbytes(); ++i)
      digest = (digest ^ bytes[i]) * 1099511628211ULL;
  }
  return std::to_string(digest);
}

/// The optimizers of the kinds, of which one is used.
struct Optimizers {
  std::unique_ptr<torch::optim::Optimizer> own;
  std::unique_ptr<hvd::DistributedDataParallel> parallel;
  std::unique_ptr<torch::optim::Optimizer> distributed;

  Optimizers(Net& net, const std::string& kind) {
    hvd::DistributedOptimizerOptions options{.op = hvd::ReduceOp::sum};
    const torch::optim::SGDOptions sgd(1.0);
    if (kind == "own") {
      parallel = std::make_unique<hvd::DistributedDataParallel>(net, options);
      own = std::make_unique<torch::optim::SGD>(net->parameters(), sgd);
    } else if (kind == "wrapped") {
      own = std::make_unique<torch::optim::SGD>(net->parameters(), sgd);
      distributed = std::make_unique<hvd::DistributedOptimizer<>>(*own, net, options);
    } else if (kind == "adam") {
      distributed = std::make_unique<hvd::DistributedOptimizer<torch::optim::Adam>>(
          net, torch::optim::AdamOptions(0.1), options);
    } else if (kind == "sharded" || kind == "mirrored") {
      distributed = std::make_unique<hvd::ShardedOptimizer<torch::optim::SGD>>(
          net, sgd,
          hvd::ShardedOptimizerOptions{
              .op = hvd::ReduceOp::sum, .bucket_bytes = 512, .mirror = kind == "mirrored"});
    } else {
      options.step_in_backward = kind == "backward";
      if (kind == "scaled") options.op = hvd::ReduceOp::average;
      distributed =
          std::make_unique<hvd::DistributedOptimizer<torch::optim::SGD>>(net, sgd, options);
    }
  }
  [[nodiscard]] torch::optim::Optimizer& used() { return distributed ? *distributed : *own; }
};

/// A model whose gradients one rank makes, so that they are the same with any number of ranks, to
/// the bit. The state of the optimizer has a part in the parameters.
template <class Optimizer, class Options>
class Second {
 public:
  explicit Second(Options options) : options_(std::move(options)) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net_->parameters()) {
      parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
    }
    net_->bias.requires_grad_(false);
  }
  void distribute(hvd::ElasticState& state, bool mirror) {
    optimizer_ = std::make_unique<hvd::ShardedOptimizer<Optimizer>>(
        net_, options_,
        hvd::ShardedOptimizerOptions{
            .op = hvd::ReduceOp::sum, .bucket_bytes = 64, .mirror = mirror});
    state.add(net_);
    state.add(*optimizer_);
  }
  void step() {
    if (!optimizer_) return;
    backward(hvd::rank() == 0 ? 1 : 0);
    optimizer_->step();
  }
  [[nodiscard]] std::string digest() const { return optimizer_ ? digest_of(*net_) : "none"; }
  /// Returns how many steps of a process that nothing disturbs have the same result, or -1.
  [[nodiscard]] std::int64_t steps(std::int64_t most) const {
    if (!optimizer_) return most;
    Second alone(options_);
    Optimizer optimizer({alone.net_->weight}, options_);
    for (std::int64_t step = 0; step <= most; ++step) {
      if (torch::equal(alone.net_->weight, net_->weight) &&
          torch::equal(alone.net_->bias, net_->bias)) {
        return step;
      }
      alone.backward(1);
      optimizer.step();
    }
    return -1;
  }

 private:
  void backward(int factor) {
    const torch::Tensor input = torch::linspace(0, 1, 16).view({2, 8});
    net_->zero_grad();
    net_(input).square().sum().mul(factor).backward();
  }

  Options options_;
  torch::nn::Linear net_{8, 37};
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

class Trainer {
 public:
  explicit Trainer(const Plan& plan)
      : plan_(plan),
        saved_{&plan},
        optimizers_(net_, plan.optimizer),
        sampler_(kExamples),
        scheduler_(optimizers_.used(), 1'000'000, 1.0),
        state_(net_, optimizers_.used(), epoch_, steps_, padding_, draws_, text_, saved_,
               scheduler_, ranks_, taken_) {
    if (!plan.contains("by_commit")) state_.add(sampler_);
    if (plan.optimizer == "sharded" || is_mirrored()) second_.distribute(state_, is_mirrored());
    if (is_mirrored()) third_.distribute(state_, true);
    state_.on_reset([this] { follow_the_ranks(); });
    // The hook of the program stays when a generation ends.
    net_->weight.register_hook([this](const torch::Tensor& gradient) {
      plan_.die_at("backward", step_);
      return gradient;
    });
    torch::manual_seed(plan.worker);
    Killer::attach();
  }

  int run() {
    if (plan_.contains("early")) {
      try {
        net_->weight.sum().backward();
        optimizers_.used().step();
        say("early training");
      } catch (const hvd::Error& error) {
        say(std::string("early ") + error.what());
      }
    }
    const bool finished = hvd::elastic_run(state_, [this] { train(); });
    say(finished ? "finished" : "left");
    return 0;
  }

 private:
  [[nodiscard]] bool is_mirrored() const { return plan_.optimizer == "mirrored"; }
  void follow_the_ranks() {
    ranks_ = hvd::size();
    if (plan_.optimizer != "scaled") return;
    optimizers_.used().param_groups()[0].options().set_lr(hvd::size());
  }

  void say_replica(int step) const {
    constexpr int kMost = 100;  // the test does not always read, and then the pipe must not fill
    if (step > kMost) return;
    say("replica of generation " + std::to_string(hvd::elastic::generation()) + " in step " +
        std::to_string(step) + ": " + digest_of(*net_) + " " + second_.digest() + " " +
        third_.digest());
  }

  void train() {
    if (steps_ == 0) follow_the_ranks();
    say("generation " + std::to_string(hvd::elastic::generation()) + " rank " +
        std::to_string(hvd::rank()) + " of " + std::to_string(hvd::size()) + " after step " +
        std::to_string(steps_) + " digest " + digest_of(*net_));
    is_newcomer_ = is_newcomer_ || (own_draws_.empty() && steps_ > 0);
    check(ranks_ == hvd::size(), "number of ranks");
    int step = 0;
    say_replica(step);
    if (plan_.contains("by_commit")) {
      while (hvd::elastic::generation() < plan_.until || step < 2 * plan_.at) {
        iterate(next_in_turn(), ++step);
      }
      return conclude();
    }
    for (;; ++epoch_) {
      sampler_.reset();
      std::size_t left = sampler_.size();
      while (const auto batch = sampler_.next(kBatch)) {
        // Where the examples cannot be divided, a rank gets some that others have too. They count
        // in the last iteration, because the ranks may change at its end.
        left -= batch->size();
        if (left == 0) padding_ += padding();
        iterate(*batch, ++step);
        if (step == 7 && hvd::elastic::generation() == 1 && plan_.contains("restore")) {
          state_.restore();
          left = sampler_.size();
        }
      }
      if (hvd::elastic::generation() >= plan_.until && step >= 2 * plan_.at) break;
    }
    ++epoch_;
    conclude();
  }

  /// Returns how many more examples all ranks get than are left.
  [[nodiscard]] std::int64_t padding() const {
    return static_cast<std::int64_t>(sampler_.size()) * hvd::size() -
           static_cast<std::int64_t>(sampler_.remaining().size());
  }

  /// Returns the next examples of this rank.
  std::vector<std::size_t> next_in_turn() {
    std::vector<std::size_t> batch(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) {
      batch[i] = (taken_ + static_cast<std::size_t>(hvd::rank()) * kBatch + i) % kExamples;
    }
    taken_ += kBatch * static_cast<std::size_t>(hvd::size());
    return batch;
  }

  void iterate(const std::vector<std::size_t>& batch, int step) {
    const torch::Tensor draw = torch::rand({1});
    std::vector<std::int64_t> indices(batch.begin(), batch.end());
    const torch::Tensor loss = net_->loss(torch::tensor(indices));
    step_ = step;
    optimizers_.used().zero_grad();
    loss.backward();
    plan_.die_at("before_step", step);
    Killer::seen = 0;
    Killer::deadly = step == plan_.at ? plan_.operation() : 0;
    optimizers_.used().step();
    second_.step();
    third_.step();
    if (std::exchange(Killer::deadly, 0) > 0) ::raise(SIGKILL);
    operations_ = Killer::seen;
    plan_.die_at("after_step", step);
    if (plan_.optimizer != "scaled") scheduler_.step();  // it would set its own rate
    ++steps_;
    say_replica(step);
    ++saved_.steps;
    text_ = std::to_string(steps_);
    draws_ = torch::cat({draws_, draw});
    own_draws_[steps_] = draw.item<float>();
    if (plan_.contains("metric")) {  // ranks communicate between step and record
      static_cast<void>(hvd::allreduce(loss.detach(), {.name = "metric"}));
    }
    if (!plan_.contains("by_commit")) sampler_.record_batch(batch.size());
    if (plan_.commit > 0 && steps_ % plan_.commit == 0) state_.commit();
    plan_.die_at("after_record", step);
    if (step == plan_.at) {
      say("generation " + std::to_string(hvd::elastic::generation()) + " trains");
    }
  }

  void conclude() {
    const torch::Tensor uses = net_->weight.detach();
    if (plan_.contains("by_commit")) {
      say("taken " + std::to_string(taken_) + " used " +
          std::to_string(static_cast<std::size_t>(uses.sum().item<float>())));
    } else if (plan_.optimizer != "adam") {
      say("epochs " + std::to_string(epoch_) + " uses " + std::to_string(uses.min().item<float>()) +
          " to " + std::to_string(uses.max().item<float>()) + " and " + std::to_string(padding_) +
          " more, sum " + std::to_string(uses.sum().item<float>()));
    }
    const std::int64_t tracked = net_->norm->num_batches_tracked.item<std::int64_t>();
    say("steps " + std::to_string(steps_) + " batches " + std::to_string(tracked) + " saved " +
        std::to_string(saved_.steps) + " text " + text_ + " draws " +
        std::to_string(draws_.numel()) + " digest " + digest_of(*net_));
    // A step that ranks have completed before a loss remains, and its iteration is done again.
    const std::int64_t most = steps_ + hvd::elastic::generation();
    const std::int64_t second = second_.steps(most);
    const std::int64_t third = third_.steps(most);
    check(second >= steps_, "state of Adam");
    check(third >= steps_, "state of momentum");
    say("second " + std::to_string(second) + " third " + std::to_string(third) + " operations " +
        std::to_string(operations_) + " steps");
    torch::manual_seed(plan_.worker);
    for (std::int64_t step = 1; step <= steps_; ++step) {
      const float draw = torch::rand({1}).item<float>();
      const auto own = own_draws_.find(step);
      check(is_newcomer_ || own == own_draws_.end() || own->second == draw, "random number");
    }
  }

  const Plan& plan_;
  Saved saved_;
  Net net_;
  Optimizers optimizers_;
  hvd::ElasticSampler sampler_;
  hvd::WarmupLR scheduler_;
  std::int64_t epoch_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t padding_ = 0;
  int ranks_ = 0;
  int step_ = 0;  ///< in this generation
  std::size_t taken_ = 0;
  torch::Tensor draws_ = torch::empty({0});
  std::map<std::int64_t, float> own_draws_;  ///< by step; those of this worker
  bool is_newcomer_ = false;
  std::string text_;
  int operations_ = 0;  ///< of LibTorch in the last calls of step()
  Second<torch::optim::Adam, torch::optim::AdamOptions> second_{torch::optim::AdamOptions(0.01)};
  Second<torch::optim::SGD, torch::optim::SGDOptions> third_{
      torch::optim::SGDOptions(0.001).momentum(0.9)};
  hvd::ElasticState state_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    torch::set_num_threads(1);
    hvd::init();
    const Plan plan({argv + 1, argv + argc});
    return Trainer(plan).run();
  } catch (const std::exception& error) {
    say(std::string("threw ") + error.what());
    return 4;
  }
}
