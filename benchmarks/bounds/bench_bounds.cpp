// bench_bounds arena|private --np N [-b SIZE] … measures a hand-written allreduce of floats between
// processes of this machine in the same way as hvd_bench, to show how fast it could be. The exit
// status is 0, 1 when a result was wrong or the file cannot be written, 64 for a wrong command
// line, or 124 when --timeout has passed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <thread>

#include <sched.h>

#include "arena_bound.hpp"
#include "driver/driver.hpp"
#include "driver/measure.hpp"
#include "private_bound.hpp"
#include "ranks.hpp"
#include "shared_memory.hpp"

namespace {

using namespace hvd::bounds;

constexpr int kUsage = 64;

struct Settings {
  std::string kind;
  int ranks = 2;
  bool bind = false;
  int timeout = 600;  ///< seconds
  hvd::peers::Options options;
};

int usable_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

void bind_to_core(int rank) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int left = rank % CPU_COUNT(&usable);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/// The memory that all ranks share: their progress counters, the staging and, for the arena, the
/// tensors.
class Ground {
 public:
  explicit Ground(const Settings& settings)
      : ranks_(static_cast<std::size_t>(settings.ranks)),
        tensors_(settings.kind == "arena" ? tensor_bytes(settings.options) : 0),
        memory_(ranks_ * (sizeof(Progress) + PrivateBound::kStage + tensors_)) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) new (&progress()[rank]) Progress;
  }
  [[nodiscard]] std::unique_ptr<hvd::peers::Library> library(int rank, bool yields) const {
    const Meeting meeting({progress(), ranks_}, static_cast<std::size_t>(rank), yields);
    auto* const stage = reinterpret_cast<float*>(progress() + ranks_);
    constexpr std::size_t kStage = PrivateBound::kStage / sizeof(float);
    if (tensors_ == 0) return std::make_unique<PrivateBound>(meeting, stage, kStage);
    return std::make_unique<ArenaBound>(meeting, stage + ranks_ * kStage, tensors_ / sizeof(float),
                                        stage, kStage);
  }

 private:
  [[nodiscard]] Progress* progress() const { return reinterpret_cast<Progress*>(memory_.data()); }
  static std::size_t tensor_bytes(const hvd::peers::Options& options) {
    constexpr std::size_t kPage = 4096;
    std::size_t most = kPage;
    for (std::size_t bytes = options.begin;; bytes *= options.factor) {
      const std::size_t stride = (bytes + 63) / 64 * 64;
      most = std::max(most, stride * hvd::peers::rotation(bytes));
      if (bytes > options.end / options.factor) break;
    }
    return (most + kPage - 1) / kPage * kPage;
  }

  std::size_t ranks_;
  std::size_t tensors_;  // bytes per rank
  SharedMemory memory_;
};

int run_bounds(const Settings& settings) {
  const bool yields = settings.ranks > usable_cores();
  const Ground ground(settings);
  return run_ranks(settings.ranks, std::chrono::seconds(settings.timeout), [&](int rank) {
    if (settings.bind) bind_to_core(rank);
    const std::unique_ptr<hvd::peers::Library> library = ground.library(rank, yields);
    return hvd::peers::run(*library, settings.options) ? 0 : 1;
  });
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Measures hand-written bounds of an allreduce on this machine.", "bench_bounds");
  app.add_option("kind", settings.kind, "arena: tensors in shared memory; private: in one's own")
      ->required()
      ->check(CLI::IsMember({"arena", "private"}));
  app.add_option("--np", settings.ranks, "processes")
      ->check(CLI::Range(2, static_cast<int>(kMostRanks)));
  app.add_flag("--bind", settings.bind, "each process to a core of its own, in turn");
  app.add_option("--timeout", settings.timeout, "seconds until all is ended")
      ->check(CLI::PositiveNumber);
  hvd::peers::add_options(app, settings.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    return run_bounds(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_bounds: %s\n", error.what());
    return 1;
  }
}
