// hvd_bench COLLECTIVE [-b SIZE] [-e SIZE] [-f FACTOR] … measures collectives and prints
// nccl-tests' columns. Every rank runs it; rank 0 prints. The exit status is 0, 1 when a result was
// wrong or the job failed, or 64 for a wrong command line.
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

#include "gpu.hpp"
#include "measure.hpp"
#include "negotiation.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

constexpr int kUsage = 64;

/// Returns the name of the engine of host memory, from the settings. The memory of GPUs has NCCL,
/// or the host's engine where ranks share a GPU.
std::string backend_of(const hvd::Config& config, const hvd::bench::Options& options) {
  if (options.cuda) return "cuda";
  return config.backend == "mpi" ? "mpi" : "native";
}

/// Returns true when all results were right.
bool run(const hvd::bench::Options& options) {
  using namespace hvd::bench;
  hvd::Context& context = hvd::context();
  const bool speaks = context.rank() == 0;
  const Setting setting{options, backend_of(context.config(), options), context.size()};
  const auto print = [&](const std::string& text) {
    if (!speaks) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  };

  std::optional<JsonFile> json;
  if (speaks && !options.json.empty()) json.emplace(options.json);

  print(table_header(setting));
  std::vector<Row> rows;
  std::size_t bytes = options.begin;
  for (;;) {
    const Extent extent = extent_of(options, bytes, context.size());
    rows.push_back(measure(context, options, extent));
    print(table_row(setting, rows.back()));
    if (options.kind == hvd::OpKind::barrier || bytes > options.end / options.factor) break;
    bytes *= options.factor;
  }
  if (json) json->write(setting, rows);

  bool right = true;
  for (const Row& row : rows) right = right && row.wrong == 0;
  return right;
}

void run_negotiation(const hvd::bench::Options& options) {
  using namespace hvd::bench;
  const hvd::Config config = hvd::Config::from_environment();
  const std::vector<NegotiationRow> rows = measure_negotiation(config, options);
  if (config.rank != 0) return;
  std::fputs(negotiation_header().c_str(), stdout);
  for (const NegotiationRow& row : rows) std::fputs(negotiation_row(row).c_str(), stdout);
  if (!options.json.empty()) write_negotiation(options.json, rows);
}

/// Prints the time of `init` and of the first allreduce, each on its slowest rank. Returns false
/// when the sum is wrong.
bool run_startup() {
  const auto began = hvd::Clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(hvd::Clock::now() - began).count();
  };
  hvd::init();
  std::vector<double> times{seconds(), 0};
  std::int64_t ranks = 1;
  hvd::allreduce(std::span(&ranks, 1), {.op = hvd::ReduceOp::sum});
  times[1] = seconds() - times[0];
  hvd::allreduce(std::span(times), {.op = hvd::ReduceOp::max});
  if (hvd::rank() == 0) {
    std::printf("ranks %d init_s %.3f first_allreduce_s %.3f\n", hvd::size(), times[0], times[1]);
  }
  return ranks == hvd::size();
}

}  // namespace

int main(int argc, char** argv) {
  hvd::bench::CommandLine line;
  try {
    line = hvd::bench::parse_command_line(argc, argv);
    if (line.help || line.options.load_only) return 0;
  } catch (const hvd::bench::UsageError& error) {
    std::fprintf(stderr, "hvd_bench: %s\nRun hvd_bench --help for the options.\n", error.what());
    return kUsage;
  }
  try {
    if (line.options.negotiation) {
      run_negotiation(line.options);
      return 0;
    }
    if (line.options.startup) {
      const bool right = run_startup();
      hvd::shutdown();
      return right ? 0 : 1;
    }
    if (line.options.cuda)
      static_cast<void>(hvd::bench::gpu_of(0));  // says at once if there is none
    hvd::init();
    if (line.options.root >= hvd::size()) {
      if (hvd::rank() == 0) {
        std::fprintf(stderr, "hvd_bench: --root %d, but there are %d ranks\n", line.options.root,
                     hvd::size());
      }
      hvd::shutdown();
      return kUsage;
    }
    const bool right = run(line.options);
    hvd::shutdown();
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hvd_bench: %s\n", error.what());
    return 1;
  }
}
