// A worker of an elastic job that trains. Its model counts how often each example was used: the
// gradient of weight i is -1 for each use of example i, and the learning rate is 1. Its arguments:
//   until=GENERATION   its function returns at the end of an epoch of this or a later generation
//   optimizer=KIND     wrapped, own (DistributedDataParallel), backward (step_in_backward), adam
//   commit=N           it commits after every N steps
//   WORKER@GENERATION=PLACE   where that worker kills itself, in the fifth step of that generation,
//                      or "terminate", where it gets SIGTERM
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

#include <hvd/torch.hpp>

namespace {

constexpr std::int64_t kExamples = 240;
constexpr std::size_t kBatch = 4;
constexpr int kActionAt = 5;

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
  std::string optimizer = "plain";
  std::vector<std::string> actions;

  explicit Plan(std::vector<std::string> arguments) : actions(std::move(arguments)) {
    for (const std::string& action : actions) {
      if (action.rfind("until=", 0) == 0)
        until = static_cast<unsigned>(std::stoul(action.substr(6)));
      if (action.rfind("commit=", 0) == 0) commit = std::stoi(action.substr(7));
      if (action.rfind("optimizer=", 0) == 0) optimizer = action.substr(10);
    }
  }
  /// Returns whether this worker has this action in this generation.
  [[nodiscard]] bool has(const std::string& place) const {
    const std::string mine =
        std::to_string(worker) + "@" + std::to_string(hvd::elastic::generation()) + "=" + place;
    return std::find(actions.begin(), actions.end(), mine) != actions.end();
  }
  void die_at(const std::string& place, int step) const {
    if (step == kActionAt && has(place)) ::raise(SIGKILL);
    if (step == kActionAt && place == "after_record" && has("terminate")) ::raise(SIGTERM);
  }
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
    } else {
      options.step_in_backward = kind == "backward";
      distributed =
          std::make_unique<hvd::DistributedOptimizer<torch::optim::SGD>>(net, sgd, options);
    }
  }
  [[nodiscard]] torch::optim::Optimizer& used() { return distributed ? *distributed : *own; }
};

class Trainer {
 public:
  explicit Trainer(const Plan& plan)
      : plan_(plan),
        saved_{&plan},
        optimizers_(net_, plan.optimizer),
        sampler_(kExamples),
        scheduler_(optimizers_.used(), 1'000'000, 1.0),
        state_(net_, optimizers_.used(), sampler_, epoch_, steps_, padding_, draws_, text_, saved_,
               scheduler_) {
    torch::manual_seed(plan.worker);
  }

  int run() {
    const bool finished = hvd::elastic_run(state_, [this] { train(); });
    say(finished ? "finished" : "left");
    return 0;
  }

 private:
  void train() {
    say("generation " + std::to_string(hvd::elastic::generation()) + " rank " +
        std::to_string(hvd::rank()) + " of " + std::to_string(hvd::size()) + " after step " +
        std::to_string(steps_) + " digest " + digest_of(*net_));
    is_newcomer_ = is_newcomer_ || (own_draws_.empty() && steps_ > 0);
    int step = 0;
    for (;; ++epoch_) {
      sampler_.reset();
      while (const auto batch = sampler_.next(kBatch)) iterate(*batch, ++step);
      // Where the examples cannot be divided, a rank gets some that others have too.
      padding_ += static_cast<std::int64_t>(sampler_.size()) * hvd::size() -
                  static_cast<std::int64_t>(sampler_.remaining().size());
      if (hvd::elastic::generation() >= plan_.until && step >= 2 * kActionAt) break;
    }
    ++epoch_;
    conclude();
  }

  void iterate(const std::vector<std::size_t>& batch, int step) {
    const torch::Tensor draw = torch::rand({1});
    std::vector<std::int64_t> indices(batch.begin(), batch.end());
    const torch::Tensor loss = net_->loss(torch::tensor(indices));
    auto hook = net_->weight.register_hook([&](const torch::Tensor& gradient) {
      plan_.die_at("backward", step);
      return gradient;
    });
    optimizers_.used().zero_grad();
    loss.backward();
    net_->weight.remove_hook(hook);
    plan_.die_at("before_step", step);
    optimizers_.used().step();
    plan_.die_at("after_step", step);
    scheduler_.step();
    ++steps_;
    ++saved_.steps;
    text_ = std::to_string(steps_);
    draws_ = torch::cat({draws_, draw});
    own_draws_[steps_] = draw.item<float>();
    if (has_metric()) static_cast<void>(hvd::allreduce(loss.detach(), {.name = "metric"}));
    sampler_.record_batch(batch.size());
    if (plan_.commit > 0 && steps_ % plan_.commit == 0) state_.commit();
    plan_.die_at("after_record", step);
    if (step == kActionAt) {
      say("generation " + std::to_string(hvd::elastic::generation()) + " trains");
    }
  }
  /// Returns whether ranks communicate between step and record in this run.
  [[nodiscard]] bool has_metric() const {
    return std::find(plan_.actions.begin(), plan_.actions.end(), "metric") != plan_.actions.end();
  }

  void conclude() {
    const torch::Tensor uses = net_->weight.detach();
    if (plan_.optimizer != "adam") {
      say("epochs " + std::to_string(epoch_) + " uses " + std::to_string(uses.min().item<float>()) +
          " to " + std::to_string(uses.max().item<float>()) + " and " + std::to_string(padding_) +
          " more, sum " + std::to_string(uses.sum().item<float>()));
    }
    const std::int64_t tracked = net_->norm->num_batches_tracked.item<std::int64_t>();
    say("steps " + std::to_string(steps_) + " batches " + std::to_string(tracked) + " saved " +
        std::to_string(saved_.steps) + " text " + text_ + " draws " +
        std::to_string(draws_.numel()) + " digest " + digest_of(*net_));
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
  torch::Tensor draws_ = torch::empty({0});
  std::map<std::int64_t, float> own_draws_;  ///< by step; those of this worker
  bool is_newcomer_ = false;
  std::string text_;
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
