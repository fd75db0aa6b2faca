// A rank of tests/outside/scale.py: steps until its schedule is frozen, then as many steps as its
// argument says. Then all ranks end, or with a second argument go on until one of them is lost.
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hvd/hvd.hpp>

namespace {

constexpr std::size_t kTensors = 8;
constexpr std::int64_t kCount = 256;
constexpr int kPatience = 1000;  // steps until the schedule is frozen
constexpr int kLost = 3;

class Step {
 public:
  /// The last tensor counts the ranks whose schedule has been frozen, so that all stop waiting for
  /// that after the same step.
  Step() : data_(kTensors, std::vector<float>(kCount, 1)), sums_(data_) {
    for (std::size_t i = 0; i < kTensors; ++i) {
      options_.push_back({.name = std::to_string(i), .op = hvd::ReduceOp::sum});
    }
  }
  void run() {
    works_.clear();
    data_.back().front() = hvd::stats().schedule_hits > 0 ? 1 : 0;
    for (std::size_t i = 0; i < kTensors; ++i) {
      works_.push_back(hvd::allreduce_async(data_[i].data(), sums_[i].data(), kCount,
                                            hvd::DType::f32, options_[i]));
    }
    for (const hvd::Work& work : works_) work.wait();
    frozen_ = std::exchange(sums_.back().front(), hvd::size()) == static_cast<float>(hvd::size());
    for (const auto& sum : sums_) {
      for (const float each : sum) right_ = right_ && each == static_cast<float>(hvd::size());
    }
  }
  [[nodiscard]] bool frozen() const { return frozen_; }
  [[nodiscard]] bool right() const { return right_; }

 private:
  std::vector<std::vector<float>> data_;
  std::vector<std::vector<float>> sums_;
  std::vector<hvd::AllreduceOptions> options_;
  std::vector<hvd::Work> works_;
  bool frozen_ = false;
  bool right_ = true;
};

/// Prints the steps and seconds of a phase and the control messages of rank 0 since the start.
void say(const char* what, int steps, double seconds) {
  if (hvd::rank() != 0) return;
  const hvd::Stats stats = hvd::stats();
  std::printf("%s steps %d seconds %.3f sent %llu received %llu\n", what, steps, seconds,
              static_cast<unsigned long long>(stats.control_messages_sent),
              static_cast<unsigned long long>(stats.control_messages_received));
  std::fflush(stdout);
}

int run(int wanted, bool until_lost) {
  auto since = hvd::Clock::now();
  const auto lap = [&since] {
    const auto from = std::exchange(since, hvd::Clock::now());
    return std::chrono::duration<double>(since - from).count();
  };
  hvd::init();
  say("started", 0, lap());
  Step step;
  int steps = 0;
  while (!step.frozen() && steps < kPatience) {
    step.run();
    ++steps;
  }
  say("frozen", steps, lap());
  if (!step.frozen()) std::printf("wrong: the schedule was not frozen\n");
  for (int i = 0; i < wanted; ++i) step.run();
  say("ran", wanted, lap());
  if (!step.right()) std::printf("wrong sum on rank %d\n", hvd::rank());
  if (until_lost) {
    for (;;) step.run();
  }
  hvd::shutdown();
  return step.right() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, SIG_IGN);  // survivors first say whom they have lost
  if (argc < 2) return 2;
  try {
    return run(std::atoi(argv[1]), argc > 2);
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::printf("lost %d\n", error.fault().rank);
    std::fflush(stdout);
    ::_exit(kLost);
  }
}
