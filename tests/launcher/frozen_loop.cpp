// A rank that computes sums until another rank is lost. It prints when it is under way, and then
// the error that it got. The exit status is 3 after an error of the library.
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <hvd/hvd.hpp>

namespace {

constexpr int kTensors = 8;
constexpr std::int64_t kCount = 1000;
constexpr int kLost = 3;

/// Submits several at once, as a backward pass does, and a blocking one.
class Step {
 public:
  explicit Step(hvd::Context& context)
      : context_(context), data_(kTensors, std::vector<float>(kCount)) {
    for (int i = 0; i < kTensors; ++i) {
      std::string name(1, static_cast<char>('0' + i));
      options_.push_back({.name = std::move(name), .op = hvd::ReduceOp::sum, .context = &context});
    }
    works_.reserve(kTensors);
  }

  void run() {
    works_.clear();
    for (std::size_t i = 0; i < kTensors; ++i) {
      works_.push_back(hvd::allreduce_async(data_[i].data(), data_[i].data(), kCount,
                                            hvd::DType::f32, options_[i]));
    }
    for (const hvd::Work& work : works_) work.wait();
    hvd::allreduce(std::span(loss_),
                   {.name = "loss", .op = hvd::ReduceOp::sum, .context = &context_});
  }

 private:
  hvd::Context& context_;
  std::vector<std::vector<float>> data_;
  std::vector<hvd::AllreduceOptions> options_;
  std::vector<hvd::Work> works_;
  std::vector<float> loss_ = std::vector<float>(1);
};

/// The schedule is frozen, or will never be.
bool under_way(const hvd::Context& context, int steps) {
  if (context.config().freeze_after == 0) return steps >= 20;
  return context.stats().schedule_hits >= 10 * kTensors;
}

long long nanoseconds_now() {
  return static_cast<long long>(hvd::Clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

}  // namespace

int main() {
  // The launcher ends survivors with SIGTERM, but they must first print their error.
  std::signal(SIGTERM, SIG_IGN);
  try {
    hvd::init();
    hvd::Context& context = hvd::context();
    Step step(context);
    bool told = false;
    for (int steps = 0;; ++steps) {
      step.run();
      if (told || !under_way(context, steps)) continue;
      told = true;
      std::printf("pid %d hits %llu ready %d\n", static_cast<int>(::getpid()),
                  static_cast<unsigned long long>(context.stats().schedule_hits), context.rank());
      std::fflush(stdout);
    }
  } catch (const hvd::Error& error) {
    std::printf("lost code %d rank %d at %lld: %s\n", static_cast<int>(error.code()),
                error.fault().rank, nanoseconds_now(), error.what());
    std::fflush(stdout);
    // Ends without cleaning up, threads included. An orderly end is not tested here, and a leak
    // checker in `_exit` would report the context.
    ::syscall(SYS_exit_group, kLost);
  }
}
