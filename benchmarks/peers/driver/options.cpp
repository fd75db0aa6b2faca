#include "options.hpp"

namespace hvd::peers {

void add_options(CLI::App& app, Options& options) {
  const CLI::AsSizeValue size(false);  // K, M and G are powers of 1024
  app.add_option("-b,--begin", options.begin, "smallest size in bytes")->transform(size);
  app.add_option("-e,--end", options.end, "largest size in bytes")->transform(size);
  app.add_option("-f,--factor", options.factor, "from one size to the next")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1} << 20));
  app.add_option("--iters", options.iterations, "per size; 0: as many as fit into --seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--warmup", options.warmup, "iterations before the measured ones")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "per size, without --iters")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--way", options.way, "this one instead of the quickest, where it applies");
  app.add_option("--json", options.json, "rank 0 writes the rows to this file");
}

}  // namespace hvd::peers
