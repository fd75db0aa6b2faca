// A worker of an elastic job that trains with an ExactOptimizer. After each step it prints the loss
// and a digest of everything that must not depend on the ranks. Its arguments:
//   until=GENERATION   it ends after ten steps of this or a later generation
//   steps=NUMBER       it ends after this step instead
//   metric             ranks communicate between the step and the end of the iteration
//   WORKER@GENERATION=PLACE  that worker kills itself in the fifth step of that generation: in the
//                      forward pass of a shard, before_step, or after_step
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <hvd/torch.hpp>

namespace {

// The last of seven steps of an epoch has four examples, and one of its five shards has none.
constexpr std::size_t kExamples = 100;
constexpr std::size_t kGlobalBatch = 16;
constexpr int kShards = 5;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

struct NetImpl : torch::nn::Module {
  torch::nn::Conv1d conv{torch::nn::Conv1dOptions(2, 6, 3)};
  torch::nn::BatchNorm1d norm{6};
  torch::nn::Dropout dropout{0.3};
  torch::nn::Linear last{6 * 6, 3};
  torch::nn::Linear unused{2, 2};
  torch::Tensor scale;

  NetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("last", last);
    register_module("unused", unused);
    scale = register_parameter("scale", torch::ones({3}, torch::kFloat64));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : parameters()) {
      parameter.copy_(torch::linspace(-0.7, 0.9, parameter.numel()).view(parameter.sizes()));
    }
  }
  torch::Tensor loss(const std::vector<std::size_t>& examples) {
    const torch::Tensor index =
        torch::tensor(std::vector<std::int64_t>(examples.begin(), examples.end()), torch::kFloat32);
    const torch::Tensor inputs =
        torch::sin(index.view({-1, 1, 1}) * torch::arange(1, 17).view({1, 2, 8}));
    const torch::Tensor hidden = dropout(torch::tanh(norm(conv(inputs))));
    const torch::Tensor outputs = last(hidden.flatten(1)).to(torch::kFloat64) * scale;
    // The sum of so many elements depends on the number of threads.
    const torch::Tensor many = torch::linspace(-1, 1, 1 << 17) * scale[0].to(torch::kFloat32);
    return (outputs - torch::cos(index).view({-1, 1})).square().mean() + many.square().mean();
  }
};
TORCH_MODULE(Net);

/// A digest of tensors (FNV-1a).
class Bits {
 public:
  void add(const torch::Tensor& tensor) {
    const torch::Tensor values = tensor.detach().contiguous();
    const auto* const bytes = static_cast<const unsigned char*>(values.const_data_ptr());
    for (std::size_t i = 0; i < values.nbytes(); ++i) {
      value_ = (value_ ^ bytes[i]) * 1099511628211ULL;
    }
  }
  [[nodiscard]] std::string text() const { return std::to_string(value_); }

 private:
  std::uint64_t value_ = 14695981039346656037ULL;
};

class Trainer {
 public:
  explicit Trainer(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {
    for (const std::string& argument : arguments_) {
      if (argument.rfind("until=", 0) == 0) until_ = std::stoul(argument.substr(6));
      if (argument.rfind("steps=", 0) == 0) last_step_ = std::stoi(argument.substr(6));
    }
    torch::manual_seed(std::stoul(std::getenv("TEST_WORKER")));  // ranks differ before they shard
  }

  void run() {
    if (hvd::elastic_run(state_, [this] { train(); })) say("finished");
  }

 private:
  [[nodiscard]] bool has(const std::string& argument) const {
    return std::find(arguments_.begin(), arguments_.end(), argument) != arguments_.end();
  }
  void die_at(const std::string& place) const {
    constexpr int kStep = 5;
    if (step_here_ == kStep && has(std::getenv("TEST_WORKER") + std::string("@") +
                                   std::to_string(hvd::elastic::generation()) + "=" + place)) {
      ::raise(SIGKILL);
    }
  }
  [[nodiscard]] bool is_done() const {
    constexpr int kAtLeast = 10;
    if (last_step_ > 0) return step_ >= last_step_;
    return hvd::elastic::generation() >= until_ && step_here_ >= kAtLeast;
  }

  void train() {
    step_here_ = 0;
    while (!is_done()) {
      sampler_.reset();
      for (auto batch = sampler_.next(0); batch && !is_done(); batch = sampler_.next(0)) {
        iterate(*batch);
      }
    }
  }

  void iterate(const std::vector<std::size_t>& batch) {
    ++step_here_;
    const double loss = optimizer_.backward(batch, [this](const hvd::BatchShard& shard) {
      const torch::Tensor mean = net_->loss(shard.examples);
      die_at("forward");
      return mean;
    });
    die_at("before_step");
    optimizer_.step();
    die_at("after_step");
    if (has("metric")) hvd::allreduce_(torch::zeros({1}), {.name = "metric"});
    ++step_;
    report(loss);
    sampler_.record_batch(batch.size());
    if (step_here_ == 1) {
      say("generation " + std::to_string(hvd::elastic::generation()) + " trains");
    }
  }

  void report(double loss) {
    Bits bits;
    for (const torch::Tensor& parameter : net_->parameters()) {
      bits.add(parameter);
      const auto found = adam_.state().find(parameter.unsafeGetTensorImpl());
      if (found == adam_.state().end()) continue;
      const auto& state = static_cast<const torch::optim::AdamParamState&>(*found->second);
      bits.add(state.exp_avg());
      bits.add(state.exp_avg_sq());
      bits.add(torch::tensor(state.step()));
    }
    for (const torch::Tensor& buffer : net_->buffers()) bits.add(buffer);
    bits.add(optimizer_.progress().buffers);
    Bits of_loss;
    of_loss.add(torch::tensor(loss, torch::kFloat64));
    say("step " + std::to_string(step_) + " bits " + bits.text() + " loss " + of_loss.text());
  }

  std::vector<std::string> arguments_;
  unsigned long until_ = 1;
  int last_step_ = 0;
  int step_here_ = 0;  ///< in this generation
  int step_ = 0;
  Net net_;
  torch::optim::Adam adam_{net_->parameters(), torch::optim::AdamOptions(0.01).weight_decay(0.1)};
  hvd::ElasticSampler sampler_{kExamples, {.global_batch = kGlobalBatch, .shards = kShards}};
  hvd::ExactOptimizer optimizer_{adam_, *net_, sampler_};
  hvd::ElasticState state_{net_, optimizer_, sampler_, step_};
};

}  // namespace

int main(int argc, char** argv) {
  try {
    // The optimizer makes the number of threads the same on all ranks.
    torch::set_num_threads(std::string(std::getenv("TEST_WORKER")) == "0" ? 1 : 2);
    hvd::init();
    Trainer({argv + 1, argv + argc}).run();
    return 0;
  } catch (const std::exception& error) {
    say(std::string("threw ") + error.what());
    return 4;
  }
}
