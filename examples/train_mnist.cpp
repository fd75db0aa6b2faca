// Trains the network of Horovod's MNIST tutorial on Fashion-MNIST, in one process or on many ranks.
//
//   train_mnist
//   hvdrun -np 4 train_mnist --epochs 3 --json result.json --plot loss.svg
//
// The lines that make it distributed are marked 1., 2. and 3.
#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/dataset.hpp"
#include "mnist/loss_curve.hpp"
#include "mnist/model.hpp"
#include "mnist/options.hpp"
#include "mnist/progress.hpp"
#include "mnist/shard_check.hpp"

namespace {

using mnist::Dataset;
using mnist::Options;
using Seconds = std::chrono::duration<double>;
using Steady = std::chrono::steady_clock;

constexpr std::int64_t kTestBatch = 500;
constexpr double kBatchOfLearningRate = 64;

/// Returns the sums of the values over the ranks.
torch::Tensor total(const char* name, const std::vector<double>& values) {
  return hvd::allreduce(torch::tensor(values, torch::kFloat64),
                        {.name = name, .op = hvd::ReduceOp::sum});
}

/// Returns the accuracy over all test images. Rank r tests the images r, r + size, r + 2·size, …
double test_accuracy(mnist::Net& model, const Dataset& test) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::int64_t right = 0;
  const torch::Tensor mine = torch::arange(hvd::rank(), test.size(), hvd::size());
  for (const torch::Tensor& indices : mine.split(kTestBatch)) {
    const Dataset batch = test.pick(indices);
    right += model(batch.images).argmax(1).eq(batch.labels).sum().item<std::int64_t>();
  }
  model->train();
  return total("test/right", {static_cast<double>(right)}).item<double>() /
         static_cast<double>(test.size());
}

struct Training {
  double learning_rate = 0;  ///< the rate at the start, from which it falls linearly to 0
  std::int64_t steps = 0;
  std::int64_t images = 0;  ///< the images that this rank has used
  double seconds = 0;
  bool shards_disjoint = true;
  mnist::LossCurve curve;  ///< the losses of this rank
};

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

/// Trains on this rank's shard once, or for the rest of `--steps`.
void train_epoch(int epoch, const Options& options, std::int64_t batch_size, mnist::Net& model,
                 torch::optim::Optimizer& optimizer, hvd::DistributedSampler& sampler,
                 const Dataset& data, mnist::Progress& progress, Training& training) {
  sampler.set_epoch(static_cast<std::size_t>(epoch));
  sampler.reset();
  mnist::ShardCheck shards(data.size());
  double loss_sum = 0;
  double right = 0;
  double seen = 0;
  bool complete = true;
  const auto began = Steady::now();

  const auto batches = (static_cast<std::int64_t>(sampler.size()) + batch_size - 1) / batch_size;
  for (std::int64_t done = 0; done < batches; ++done) {
    if (options.steps && training.steps >= *options.steps) {
      complete = false;
      break;
    }
    const auto chosen = *sampler.next(static_cast<std::size_t>(batch_size));
    const torch::Tensor indices =
        torch::tensor(std::vector<std::int64_t>(chosen.begin(), chosen.end()), torch::kInt64);
    const Dataset batch = data.pick(indices);

    set_learning_rate(optimizer, training.learning_rate *
                                     (1 - static_cast<double>(training.steps) /
                                              static_cast<double>(batches * options.epochs)));
    optimizer.zero_grad();
    const torch::Tensor output = model(batch.images);
    const torch::Tensor loss = torch::nll_loss(output, batch.labels);
    loss.backward();
    optimizer.step();

    const auto count = static_cast<double>(batch.size());
    shards.use(indices);
    training.curve.losses.push_back(loss.item<double>());
    loss_sum += training.curve.losses.back() * count;
    right += output.argmax(1).eq(batch.labels).sum().item<double>();
    seen += count;
    ++training.steps;
    progress.step(epoch + 1, options.epochs, done + 1, batches, training.curve.losses.back());
  }

  const double seconds = Seconds(Steady::now() - began).count();
  training.seconds += seconds;
  training.images += static_cast<std::int64_t>(seen);
  training.curve.epochs.push_back(training.curve.losses.size());
  const auto padding = static_cast<std::int64_t>(sampler.size()) * hvd::size() - data.size();
  training.shards_disjoint = shards.disjoint(padding, complete) && training.shards_disjoint;
  const torch::Tensor sums = total("epoch", {loss_sum, right, seen});
  const double all_seen = std::max(sums[2].item<double>(), 1.0);
  progress.line(fmt::format("epoch {}/{}  loss {:.4f}  accuracy {:.4f}  {:.1f} s", epoch + 1,
                            options.epochs, sums[0].item<double>() / all_seen,
                            sums[1].item<double>() / all_seen, seconds));
}

/// Averages each loss over the ranks, which have done equally many steps.
void average_losses(std::vector<double>& losses) {
  const torch::Tensor averaged =
      hvd::allreduce(torch::tensor(losses, torch::kFloat64), {.name = "losses"});
  std::copy_n(averaged.const_data_ptr<double>(), losses.size(), losses.begin());
}

double milliseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string bytes_of_parameters(mnist::Net& model) {
  std::string bytes;
  for (const torch::Tensor& parameter : model->parameters()) {
    const torch::Tensor values = parameter.detach().contiguous();
    bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  return bytes;
}

std::int64_t batch_size_of_rank(const Options& options) {
  if (options.global_batch == 0) return options.batch_size;
  if (options.global_batch % hvd::size() != 0) {
    throw std::invalid_argument(fmt::format("--global-batch {} cannot be shared by {} ranks",
                                            options.global_batch, hvd::size()));
  }
  return options.global_batch / hvd::size();
}

/// The learning rate grows with the global batch (Goyal et al. 2017, "Accurate, Large Minibatch
/// SGD", section 2.1).
torch::optim::SGDOptions sgd_options(const Options& options, std::int64_t batch_size) {
  const auto global = static_cast<double>(batch_size * hvd::size());
  return torch::optim::SGDOptions(options.lr * global / kBatchOfLearningRate)
      .momentum(options.momentum);
}

void train(const Options& options) {
  // 1. Join the job, which tells this process its rank and the number of ranks.
  hvd::init();

  const std::int64_t batch_size = batch_size_of_rank(options);
  const Dataset train_set = mnist::load(options.data, mnist::Split::train, options.limit);
  const Dataset test_set = mnist::load(options.data, mnist::Split::test);

  // The ranks' initial parameters differ until the optimizer broadcasts those of rank 0.
  torch::manual_seed(options.seed + static_cast<std::uint64_t>(hvd::rank()));
  mnist::Net model(options.dropout);

  // 2. Wrap the optimizer: gradients are averaged over the ranks while backward() still runs.
  const torch::optim::SGDOptions sgd = sgd_options(options, batch_size);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (options.sync) {
    optimizer = std::make_unique<hvd::DistributedOptimizer<torch::optim::SGD>>(
        model->named_parameters(), sgd);
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(model->parameters(), sgd);
  }

  // 3. Train on a shard of the data, another one on each rank.
  hvd::DistributedSampler sampler(static_cast<std::size_t>(train_set.size()),
                                  {.seed = options.seed});

  mnist::Progress progress(hvd::rank() == 0);
  progress.line(fmt::format("training on {} images, {} ranks with batches of {}", train_set.size(),
                            hvd::size(), batch_size));
  Training training;
  training.learning_rate = sgd.lr();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    if (options.steps && training.steps >= *options.steps) break;
    train_epoch(epoch, options, batch_size, model, *optimizer, sampler, train_set, progress,
                training);
  }

  const double accuracy = test_accuracy(model, test_set);
  const hvd::Verification replicas = hvd::verify(model);
  const auto images = static_cast<std::int64_t>(
      total("images", {static_cast<double>(training.images)}).item<double>());
  const double images_per_s =
      training.seconds > 0 ? static_cast<double>(images) / training.seconds : 0;
  average_losses(training.curve.losses);
  progress.line(fmt::format("test accuracy {:.4f}, {:.0f} images/s", accuracy, images_per_s));
  progress.line(replicas ? "all ranks hold identical parameters"
                         : "the ranks' parameters differ: " + replicas.first_difference);

  if (hvd::rank() == 0) {
    if (!options.json.empty()) {
      const hvd::Stats stats = hvd::stats();
      const nlohmann::ordered_json results{
          {"test_accuracy", accuracy},
          {"images_per_s", images_per_s},
          {"replicas_identical", replicas.identical},
          {"ranks", hvd::size()},
          {"steps", training.steps},
          {"shards_disjoint", training.shards_disjoint},
          {"images_seen", images},
          {"fused_tensors", stats.fused_tensors},
          // The following are medians over the last steps.
          {"control_messages_per_step", stats.step.p50.messages},
          {"exposed_comm_ms", milliseconds(stats.step.p50.exposed)},
          {"step_ms_p50", milliseconds(stats.step.p50.duration)}};
      write_file(options.json, results.dump(2) + "\n");
    }
    if (!options.plot.empty()) {
      training.curve.title = fmt::format("Fashion-MNIST, {} ranks, test accuracy {:.1f} %",
                                         hvd::size(), 100 * accuracy);
      write_file(options.plot, mnist::to_svg(training.curve));
    }
    if (!options.save_parameters.empty()) {
      write_file(options.save_parameters, bytes_of_parameters(model));
    }
  }
  optimizer.reset();
  hvd::shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = mnist::parse(argc, argv, options)) return *status;
  try {
    train(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_mnist: {}\n", error.what());
    return 1;
  }
  return 0;
}
