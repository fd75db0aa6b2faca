// Trains a small transformer to predict the next character of a text.
//
//   hvdrun -np 4 train_transformer novel.txt --steps 2000
//
// The lines that make it distributed are marked 1. to 3.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

namespace {

using namespace torch::nn;

constexpr std::int64_t kCharacters = 256;  // a character is a byte, in any encoding

struct Options {
  std::string text;
  int steps = 2000;
  unsigned warm_up = 100;  // steps until the full learning rate
  std::size_t batch = 8;   // windows per rank
  std::int64_t window = 64;
  double lr = 2e-3;
  double clip = 1.0;  // the greatest norm of all gradients together
};

/// Maps characters [T, B] to the logits [T, B, kCharacters] of the next characters.
class WriterImpl : public Module {
 public:
  explicit WriterImpl(std::int64_t window)
      : characters_(register_module("characters", Embedding(kCharacters, kWidth))),
        places_(register_parameter("places", torch::randn({window, 1, kWidth}) * 0.02)),
        encoder_(register_module(
            "encoder", TransformerEncoder(TransformerEncoderOptions(layer_options(), kLayers)))),
        output_(register_module("output", Linear(kWidth, kCharacters))),
        no_future_(TransformerImpl::generate_square_subsequent_mask(window)) {}

  torch::Tensor forward(const torch::Tensor& text) {
    return output_(encoder_->forward(characters_(text) + places_, no_future_));
  }

 private:
  static constexpr std::int64_t kWidth = 64;
  static constexpr std::int64_t kLayers = 2;

  static TransformerEncoderLayerOptions layer_options() {
    return TransformerEncoderLayerOptions(kWidth, /*nhead=*/4).dim_feedforward(4 * kWidth);
  }

  Embedding characters_;
  torch::Tensor places_;
  TransformerEncoder encoder_;
  Linear output_;
  torch::Tensor no_future_;
};
TORCH_MODULE(Writer);

/// Returns the bytes of the file, i64 [N].
torch::Tensor read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<unsigned char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty()) throw std::runtime_error("cannot read " + path);
  return torch::tensor(std::vector<std::int64_t>(bytes.begin(), bytes.end()), torch::kInt64);
}

void train(const Options& options) {
  const torch::Tensor text = read_text(options.text);
  const std::int64_t starts = text.size(0) - options.window;  // each window has a next character
  if (starts <= 0) throw std::runtime_error(options.text + " is shorter than a window");

  Writer model(options.window);
  // 2. Average the gradients.
  hvd::DistributedOptimizer<torch::optim::AdamW> optimizer(model->named_parameters(),
                                                           torch::optim::AdamWOptions(options.lr));
  hvd::WarmupLR warm_up(optimizer, options.warm_up, /*start_factor=*/0.01);
  // 3. Take a shard of the windows. A window begins at every character.
  hvd::DistributedSampler sampler(static_cast<std::size_t>(starts));

  const torch::Tensor steps_in_window = torch::arange(options.window + 1);
  for (int step = 0; step < options.steps; ++step) {
    auto chosen = sampler.next(options.batch);
    if (!chosen) {
      sampler.reset();
      chosen = sampler.next(options.batch);
    }
    const torch::Tensor begins =
        torch::tensor(std::vector<std::int64_t>(chosen->begin(), chosen->end()), torch::kInt64);
    // The shape is [window + 1, B].
    const torch::Tensor windows = text.index({steps_in_window.unsqueeze(1) + begins});

    optimizer.zero_grad();
    const torch::Tensor logits = model(windows.narrow(0, 0, options.window));
    const torch::Tensor loss = torch::cross_entropy_loss(
        logits.flatten(0, 1), windows.narrow(0, 1, options.window).flatten());
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), options.clip);
    optimizer.step();
    warm_up.step();

    if (step % 10 == 0 || step + 1 == options.steps) {
      const double mean = hvd::average_metric(loss.item<double>(), "loss");
      if (hvd::rank() == 0) std::printf("step %d loss %.4f\n", step, mean);
    }
  }

  const hvd::Verification same = hvd::verify(model);
  if (hvd::rank() == 0) {
    std::printf("%s\n",
                same ? "all ranks hold identical parameters" : same.first_difference.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a small transformer on a text");
  app.add_option("text", options.text, "Any file")->required();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--warm-up", options.warm_up, "Steps until the full learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Windows per rank and step")->capture_default_str();
  app.add_option("--window", options.window, "Characters")->capture_default_str();
  app.add_option("--clip", options.clip, "Norm of the gradients")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_transformer: %s\n", error.what());
  return 1;
}
