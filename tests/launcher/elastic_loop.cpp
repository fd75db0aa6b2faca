// A worker of an elastic job that trains until the file `stop` is in the directory of its argument.
// It also runs under torchrun. Other files there plan what the worker N does: `die.N` kills it
// before it joins, `die_in_sync.N` while it joins, `die_in_collective.N` in the middle of an
// allreduce; with `throw.N` its function throws. Its state depends on every step that it has taken,
// and all ranks check it in each step.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <hvd/elastic.hpp>

namespace {

/// Reads the files of the test.
struct Plan {
  std::filesystem::path directory;
  std::string worker;

  [[nodiscard]] bool stops() const { return exists("stop"); }
  [[nodiscard]] bool has(const std::string& action) const { return exists(action + "." + worker); }
  /// Returns whether the worker has this action, which it does once.
  [[nodiscard]] bool take(const std::string& action) const {
    return std::filesystem::remove(directory / (action + "." + worker));
  }

 private:
  [[nodiscard]] bool exists(const std::string& name) const {
    return std::filesystem::exists(directory / name);
  }
};

void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("wrong ") + what);
}

/// What training makes of its steps: a step that is lost or taken twice changes it for ever.
struct Progress {
  std::uint64_t steps = 0;
  std::uint64_t sum = 0;

  [[nodiscard]] std::uint64_t gradient() const { return (steps * 40'503U) % 65'521U; }
  void step(std::uint64_t averaged) {
    sum = sum * 6'364'136'223'846'793'005U + averaged;
    ++steps;
  }
  bool operator==(const Progress&) const = default;
};

struct State final : hvd::ElasticStateBase {
  explicit State(const Plan& given) : plan(given) {}

  const Plan& plan;
  Progress progress;

  void commit() override {}
  void restore() override {}
  /// All ranks go on with the newest state, which is at most one step ahead.
  void synchronize(hvd::Context&) override {
    if (plan.has("die_in_sync")) ::raise(SIGKILL);
    const std::vector<std::int64_t> own{static_cast<std::int64_t>(progress.steps),
                                        static_cast<std::int64_t>(progress.sum)};
    const auto all = hvd::allgather(std::span(own));
    Progress newest = progress;
    for (std::size_t i = 0; i < all.size(); i += 2) {
      const Progress other{static_cast<std::uint64_t>(all[i]),
                           static_cast<std::uint64_t>(all[i + 1])};
      check(other.steps != newest.steps || other == newest, "state of another rank");
      if (other.steps > newest.steps) newest = other;
    }
    check(progress.steps == 0 || newest.steps - progress.steps <= 1, "number of steps");
    Progress again;
    while (again.steps < newest.steps) again.step(again.gradient());
    check(again == newest, "sum of all steps");
    progress = newest;
  }
};

/// Returns false when the file `stop` is there on some rank.
bool take_step(const Plan& plan, Progress& progress) {
  const bool dies = plan.take("die_in_collective");
  if (plan.has("throw")) throw std::runtime_error("planned");
  const auto gradient = progress.gradient();
  const std::vector<double> own{1.0,
                                plan.stops() ? 1.0 : 0.0,
                                dies ? 1.0 : 0.0,
                                static_cast<double>(gradient),
                                static_cast<double>(progress.sum >> 32U),
                                static_cast<double>(progress.sum & 0xffffffffU)};
  std::vector<double> sums(own.size());
  hvd::allreduce(std::span(own), std::span(sums), {.name = "sums", .op = hvd::ReduceOp::sum});
  for (const std::size_t i : {0U, 3U, 4U, 5U}) check(sums[i] == own[i] * hvd::size(), "sums");
  progress.step(static_cast<std::uint64_t>(sums[3]) / static_cast<std::uint64_t>(hvd::size()));
  if (sums[2] > 0.0) {
    std::vector<float> values(std::size_t{1} << 22U, 1.0F);
    auto work = hvd::allreduce_async(values.data(), values.data(), std::ssize(values),
                                     hvd::DType::f32, {.name = "large"});
    if (dies) ::raise(SIGKILL);
    work.wait();
    throw std::logic_error("a collective without one of its ranks succeeded");
  }
  return sums[1] == 0.0;
}

void train(const Plan& plan, Progress& progress) {
  static_cast<void>(hvd::stop_requested());  // from here on it does not die of SIGTERM
  std::printf(
      "generation %u: worker %s is rank %d of %d, pid %d, local %d of %d, cross %d of %d, "
      "step %llu, %d ranks with worker %s\n",
      hvd::elastic::generation(), plan.worker.c_str(), hvd::rank(), hvd::size(), ::getpid(),
      hvd::local_rank(), hvd::local_size(), hvd::cross_rank(), hvd::cross_size(),
      static_cast<unsigned long long>(progress.steps), hvd::size(), plan.worker.c_str());
  std::fflush(stdout);
  while (take_step(plan, progress)) {
    if (hvd::stop_requested()) {
      std::printf("worker %s stops after step %llu\n", plan.worker.c_str(),
                  static_cast<unsigned long long>(progress.steps));
      return;
    }
    // A step of a trainer takes longer too.
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

}  // namespace

int main(int, char** argv) try {
  // torchrun's processes have ranks only.
  const char* const worker = std::getenv("HVD_WORKER");
  const Plan plan{argv[1], worker != nullptr ? worker : std::getenv("RANK")};
  if (plan.has("die")) ::raise(SIGKILL);
  State state(plan);
  const bool finished = hvd::elastic_run(state, [&] { train(plan, state.progress); });
  std::printf("worker %s %s\n", plan.worker.c_str(), finished ? "has finished" : "leaves");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "worker threw: %s\n", error.what());
  return 4;
}
