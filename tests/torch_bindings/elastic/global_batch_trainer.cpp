// A worker of an elastic job that trains with a constant global batch, and compares its losses with
// those of one process that nothing disturbs. Its arguments:
//   until=GENERATION   it ends at the end of an epoch of this or a later generation
//   WORKER@GENERATION  that worker kills itself in the fifth step of that generation
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <hvd/torch.hpp>

namespace {

constexpr std::size_t kExamples = 100;
constexpr std::size_t kGlobalBatch = 16;  // the last of seven steps of an epoch has four examples
const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : net->parameters()) {
    parameter.copy_(torch::linspace(-0.5, 0.6, parameter.numel()).view(parameter.sizes()));
  }
  return net;
}

/// Returns the loss of each example.
torch::Tensor losses_of(torch::nn::Sequential& net, const std::vector<std::size_t>& share) {
  const torch::Tensor index =
      torch::tensor(std::vector<std::int64_t>(share.begin(), share.end()), torch::kFloat64);
  const torch::Tensor inputs =
      torch::sin(index.view({-1, 1}) * torch::arange(1, 5, torch::kFloat64));
  return (net->forward(inputs) - torch::cos(index).view({-1, 1})).square().view(-1);
}

std::vector<double> losses_of_one_process(std::size_t steps) {
  auto net = make_net();
  torch::optim::SGD sgd(net->parameters(), kSgd);
  hvd::ElasticSampler sampler(kExamples, {.rank = 0, .size = 1, .global_batch = kGlobalBatch});
  std::vector<double> losses;
  while (losses.size() < steps) {
    sampler.reset();
    while (const auto share = sampler.next(0)) {
      sgd.zero_grad();
      const torch::Tensor loss = losses_of(net, *share).mean();
      loss.backward();
      sgd.step();
      losses.push_back(loss.item<double>());
    }
  }
  return losses;
}

class Trainer {
 public:
  explicit Trainer(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  void run() {
    if (hvd::elastic_run(state_, [this] { train(); })) say("finished");
  }

 private:
  [[nodiscard]] bool has(const std::string& argument) const {
    return std::find(arguments_.begin(), arguments_.end(), argument) != arguments_.end();
  }
  [[nodiscard]] bool is_last_generation() const {
    return has("until=" + std::to_string(hvd::elastic::generation()));
  }

  void train() {
    constexpr int kActionAt = 5;
    const std::string here =
        std::getenv("TEST_WORKER") + std::string("@") + std::to_string(hvd::elastic::generation());
    for (int step = 0; !is_last_generation() || step < 2 * kActionAt;) {
      sampler_.reset();
      while (const auto share = sampler_.next(0)) {
        if (++step == kActionAt) {
          say("generation " + std::to_string(hvd::elastic::generation()) + " trains");
          if (has(here)) ::raise(SIGKILL);
        }
        iterate(*share);
      }
    }
    compare();
  }

  void iterate(const std::vector<std::size_t>& share) {
    optimizer_.set_weight(static_cast<double>(share.size()));
    optimizer_.zero_grad();
    const torch::Tensor losses = losses_of(net_, share);
    const torch::Tensor sums = hvd::allreduce(
        torch::stack({losses.detach().sum(),
                      torch::tensor(static_cast<double>(share.size()), torch::kFloat64)}),
        {.name = "sums", .op = hvd::ReduceOp::sum});
    losses.mean().backward();
    optimizer_.step();
    curve_ = torch::cat({curve_, (sums[0] / sums[1]).view(1)});
    sampler_.record_batch(share.size());
  }

  void compare() {
    const std::vector<double> alone =
        losses_of_one_process(static_cast<std::size_t>(curve_.numel()));
    double most = alone.size() == static_cast<std::size_t>(curve_.numel()) ? 0 : 1;
    for (std::int64_t i = 0; i < curve_.numel() && most < 1; ++i) {
      most =
          std::max(most, std::abs(curve_[i].item<double>() - alone[static_cast<std::size_t>(i)]));
    }
    say(std::to_string(curve_.numel()) + " losses, the last " + std::to_string(alone.back()) +
        " of " + std::to_string(alone.front()) +
        (most < 1e-9 ? ", are those of one process" : ", differ by " + std::to_string(most)));
  }

  std::vector<std::string> arguments_;
  torch::nn::Sequential net_ = make_net();
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer_{net_, kSgd, {.weighted = true}};
  hvd::ElasticSampler sampler_{kExamples, {.global_batch = kGlobalBatch}};
  torch::Tensor curve_ = torch::empty({0}, torch::kFloat64);
  hvd::ElasticState state_{net_, optimizer_, sampler_, curve_};
};

}  // namespace

int main(int argc, char** argv) {
  try {
    torch::set_num_threads(1);
    hvd::init();
    Trainer({argv + 1, argv + argc}).run();
    return 0;
  } catch (const std::exception& error) {
    say(std::string("threw ") + error.what());
    return 4;
  }
}
