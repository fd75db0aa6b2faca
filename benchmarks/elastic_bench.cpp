// A worker of an elastic job for benchmarks/elastic. It trains, and writes into a file that it maps
// when it has completed steps.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/torch.hpp>

#include "train_bench/workload.hpp"

namespace {

/// A worker writes this at 64 bytes times its number. The script reads it while it changes, so
/// `first` of a generation counts only when `generation` is the same before and after.
struct Entry {
  std::uint64_t generation = 0;
  std::uint64_t ranks = 0;
  std::uint64_t pid = 0;
  std::uint64_t steps = 0;     ///< in this generation
  std::uint64_t first = 0;     ///< nanoseconds of the monotonic clock after its first step
  std::uint64_t last = 0;      ///< the same after its last step
  std::uint64_t previous = 0;  ///< the same after the last step of the generation before
  std::uint64_t all_steps = 0;
};
static_assert(sizeof(Entry) == 64);

constexpr std::size_t kWorkers = 65'536;

Entry& entry_in(const std::string& file) {
  const hvd::UniqueFd descriptor(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  constexpr std::size_t kSize = kWorkers * sizeof(Entry);
  void* const memory =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + file);
  const char* const worker = std::getenv("HVD_WORKER");
  const auto number = worker == nullptr ? 0 : std::stoul(worker);
  return static_cast<Entry*>(memory)[number % kWorkers];
}

std::uint64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

void record_step(Entry& entry) {
  const std::uint64_t time = now();
  const std::uint64_t generation = std::max(1U, hvd::elastic::generation());
  if (entry.generation != generation) {
    entry.previous = entry.last;
    entry.first = time;
    entry.steps = 0;
    entry.ranks = static_cast<std::uint64_t>(hvd::size());
    entry.pid = static_cast<std::uint64_t>(::getpid());
    entry.generation = generation;
  }
  entry.last = time;
  ++entry.steps;
  ++entry.all_steps;
}

struct Options {
  std::string model = "cnn";
  std::string optimizer = "distributed";
  std::string file;
  double seconds = 0;
  bool plain = false;
  bool stops = false;
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind,
                                                        const torch::nn::Module& model) {
  if (kind == "distributed") {
    return std::make_unique<hvd::DistributedOptimizer<torch::optim::SGD>>(
        model.named_parameters(), torch::optim::SGDOptions(0.001).momentum(0.9));
  }
  return std::make_unique<hvd::ShardedOptimizer<torch::optim::Adam>>(
      model.named_parameters(), torch::optim::AdamOptions(0.001),
      hvd::ShardedOptimizerOptions{.mirror = kind == "mirrored"});
}

void train(const Options& options) {
  Entry* const board = options.file.empty() ? nullptr : &entry_in(options.file);
  const hvd::bench::Workload workload = hvd::bench::make_workload(options.model, 0);
  workload.model->train();
  std::vector<std::int64_t> shape = workload.input_shape;
  shape.insert(shape.begin(), workload.batch);
  const torch::Tensor input = workload.vocabulary > 0
                                  ? torch::randint(workload.vocabulary, shape, torch::kInt64)
                                  : torch::randn(shape);
  const torch::Tensor target =
      workload.vocabulary > 0 ? input : torch::randint(workload.classes, {workload.batch});
  const auto optimizer = make_optimizer(options.optimizer, *workload.model);
  const auto run = [&](const std::function<void()>& end_step) {
    constexpr int kWarmUp = 30;
    std::uint64_t began = 0;
    for (int step = 0;; ++step) {
      if (step == kWarmUp) began = now();
      optimizer->zero_grad();
      workload.loss(workload.forward(input), target).backward();
      optimizer->step();
      end_step();
      if (board != nullptr) record_step(*board);
      if (options.stops && hvd::stop_requested()) return;
      if (options.seconds <= 0 || step < kWarmUp) continue;
      // The ranks end together, because rank 0 tells them when.
      if (step % 16 != 0) continue;
      double passed = static_cast<double>(now() - began) / 1e9;
      hvd::broadcast(std::span(&passed, 1), 0);
      if (passed < options.seconds) continue;
      if (hvd::rank() == 0) std::printf("%.3f steps/s\n", (step - kWarmUp) / passed);
      return;
    }
  };
  if (options.plain) return run([] {});
  hvd::ElasticState state(workload.model, *optimizer);
  hvd::elastic_run(state, [&] { run([&] { state.end_step(); }); });
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains while the ranks of an elastic job come and go");
  app.add_option("--model", options.model)
      ->check(CLI::IsMember(hvd::bench::workload_names()))
      ->capture_default_str();
  app.add_option("--optimizer", options.optimizer, "The latter two are of Adam")
      ->check(CLI::IsMember({"distributed", "sharded", "mirrored"}))
      ->capture_default_str();
  app.add_option("--board", options.file, "The file for the times of steps");
  app.add_option("--seconds", options.seconds, "How long; 0: until the process is killed");
  app.add_flag("--stops", options.stops, "Ends when the job is asked to stop");
  app.add_flag("--plain", options.plain, "Without hvd::elastic_run and hvd::ElasticState");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  hvd::init();
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "elastic_bench: %s\n", error.what());
  return 1;
}
