// allocator_bench measures what the replacement of LibTorch's CPU allocator costs for memory that
// hvd does not use. Run it under hvdrun with two ranks or more on one host; rank 0 measures and
// prints. The exit status is 0, 1 when the job failed, or 64 for a wrong command line.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <hvd/torch.hpp>

namespace {

using Steady = std::chrono::steady_clock;

constexpr int kUsage = 64;
constexpr std::size_t kSmallest = 64;
constexpr std::size_t kLargest = std::size_t{64} << 20;
constexpr std::size_t kSizeFactor = 4;
constexpr std::size_t kLive = 16;  // live blocks at a time, so that blocks differ

struct Settings {
  int rounds = 15;
  double milliseconds = 2;  ///< duration of a round
  int threads = 2;
};

/// The allocator of LibTorch, and its replacement.
using Allocators = std::array<c10::Allocator*, 2>;

/// Returns the nanoseconds for one allocation and one deallocation.
double time_of(c10::Allocator& allocator, std::size_t bytes, std::size_t count) {
  std::vector<c10::DataPtr> live(kLive);
  const auto begin = Steady::now();
  for (std::size_t i = 0; i < count; ++i) live[i % kLive] = allocator.allocate(bytes);
  live.clear();
  return std::chrono::duration<double, std::nano>(Steady::now() - begin).count() /
         static_cast<double>(count);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Returns medians over the rounds, in which the two allocators take turns.
std::array<double, 2> compare(const Allocators& allocators, std::size_t bytes,
                              const Settings& settings) {
  const double estimate = time_of(*allocators[0], bytes, 4 * kLive);
  const auto count = static_cast<std::size_t>(
      std::max(2.0 * kLive, settings.milliseconds * 1e6 / std::max(estimate, 1.0)));
  std::array<std::vector<double>, 2> times;
  for (int round = 0; round < settings.rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const auto which = static_cast<std::size_t>((round + turn) % 2);
      times[which].push_back(time_of(*allocators[which], bytes, count));
    }
  }
  return {median(times[0]), median(times[1])};
}

/// Runs `measure` on this thread, or on `count` other threads at once, and returns the mean.
std::array<double, 2> on_threads(int count, const std::function<std::array<double, 2>()>& measure) {
  if (count == 0) return measure();
  std::latch all_there(count);
  std::vector<std::array<double, 2>> results(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      all_there.arrive_and_wait();
      result = measure();
    });
  }
  threads.clear();  // joins
  std::array<double, 2> mean{};
  for (const auto& result : results) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += result[i] / count;
  }
  return mean;
}

void measure_all(const Allocators& allocators, const Settings& settings) {
  fmt::print("{:>10} {:>16} {:>12} {:>12} {:>8}\n", "bytes", "thread", "before ns", "now ns",
             "ratio");
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= kSizeFactor) {
    for (const int threads : {0, 1, settings.threads}) {
      const auto [before, now] =
          on_threads(threads, [&, bytes = bytes] { return compare(allocators, bytes, settings); });
      fmt::print("{:>10} {:>16} {:>12.1f} {:>12.1f} {:>8.3f}\n", bytes,
                 threads == 0 ? "trainer's" : fmt::format("{} other", threads), before, now,
                 now / before);
    }
  }
}

/// Creates an optimizer that places gradients in the arena, and measures.
void run(const Settings& settings) {
  c10::Allocator* const before = c10::GetCPUAllocator();
  torch::nn::Linear model(100, 100);
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(model->named_parameters(),
                                                         torch::optim::SGDOptions(0.1));
  model->forward(torch::ones({1, 100})).sum().backward();
  optimizer.step();
  c10::Allocator* const now = c10::GetCPUAllocator();
  if (now == before) throw std::runtime_error("nothing was replaced: run it with two ranks");
  if (hvd::rank() == 0) measure_all({before, now}, settings);
  hvd::barrier();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("What the replaced CPU allocator costs memory that is no gradient's.");
  app.add_option("--rounds", settings.rounds, "of which the median is printed")
      ->check(CLI::PositiveNumber);
  app.add_option("--ms", settings.milliseconds, "of each round")->check(CLI::PositiveNumber);
  app.add_option("--threads", settings.threads, "at once, in the last rows")
      ->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    hvd::init();
    run(settings);
    hvd::shutdown();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "allocator_bench: {}\n", error.what());
    return 1;
  }
}
