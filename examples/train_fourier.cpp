// Learns a filter from what it does to signals. The filter is a layer of complex numbers, one for
// each frequency: a Fourier layer, as Fourier neural operators stack them.
//
//   train_fourier
//   hvdrun -np 4 train_fourier
//
// The lines that make it distributed are marked 1. to 3. Any number of ranks that divides the batch
// trains as one process does.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

namespace {

constexpr std::int64_t kPoints = 64;
constexpr std::int64_t kSignals = 512;

struct Options {
  int steps = 200;
  std::size_t batch = 64;  // signals per step, of all ranks together
  torch::Dtype dtype = torch::kFloat64;
};

struct FourierLayerImpl : torch::nn::Module {
  explicit FourierLayerImpl(torch::Dtype dtype)
      : weight(register_parameter("weight",
                                  torch::zeros({kPoints / 2 + 1}, c10::toComplexType(dtype)))) {}
  torch::Tensor forward(const torch::Tensor& signals) const {
    return torch::fft::irfft(torch::fft::rfft(signals) * weight, kPoints);
  }
  torch::Tensor weight;
};
TORCH_MODULE(FourierLayer);

void train(const Options& options) {
  torch::manual_seed(1);  // all ranks have the same signals
  const torch::Tensor signals =
      torch::randn({kSignals, kPoints}, torch::kFloat64).to(options.dtype);
  // The filter to be learned delays a signal by three points, so its weights are no real numbers.
  const torch::Tensor delayed = signals.roll(3, 1);

  FourierLayer model(options.dtype);
  // 2. Average the gradients over the ranks.
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      *model, torch::optim::SGDOptions(0.1).momentum(0.9));
  // 3. Take a shard of the data.
  hvd::DistributedSampler sampler(kSignals);
  const std::size_t batch = options.batch / static_cast<std::size_t>(hvd::size());
  if (batch == 0) throw std::invalid_argument("a batch needs a signal for each rank");

  for (int step = 0; step < options.steps; ++step) {
    auto indices = sampler.next(batch);
    if (!indices) {
      sampler.reset();
      indices = sampler.next(batch);
    }
    const torch::Tensor mine =
        torch::tensor(std::vector<std::int64_t>(indices->begin(), indices->end()));
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::mse_loss(model(signals.index_select(0, mine)), delayed.index_select(0, mine));
    loss.backward();
    optimizer.step();
    if (step % 10 != 0) continue;
    const auto mean = hvd::allreduce(loss.detach()).item<double>();
    if (hvd::rank() == 0) std::printf("step %d loss %.12f\n", step, mean);
  }

  const hvd::Verification same = hvd::verify(*model);
  if (hvd::rank() != 0) return;
  for (int frequency = 0; frequency < 4; ++frequency) {
    const auto weight = model->weight[frequency].item<c10::complex<double>>();
    std::printf("frequency %d real %.12f imaginary %.12f\n", frequency, weight.real(),
                weight.imag());
  }
  std::printf("%s\n", same ? "all ranks hold identical parameters" : same.first_difference.c_str());
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Learns a filter with a layer of complex parameters");
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Signals per step")->capture_default_str();
  app.add_flag_callback(
      "--float", [&] { options.dtype = torch::kFloat32; }, "Train in single precision");
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_fourier: %s\n", error.what());
  return 1;
}
