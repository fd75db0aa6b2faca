// Declares the options of every peer in benchmarks/compare, with hvd_bench's names where it has
// them.
#pragma once

#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace hvd::peers {

struct Options {
  std::size_t begin = 4;       ///< bytes
  std::size_t end = 64 << 20;  ///< bytes, included
  std::size_t factor = 4;
  int iterations = 0;    ///< per size; 0: as many as fit into `seconds`
  int warmup = 3;        ///< iterations
  double seconds = 0.5;  ///< per size
  std::string way;       ///< instead of the fastest; a size without this algorithm is left out
  std::string json;      ///< file of rank 0, empty: none
};

/// Binds the options to the command line. `options` must outlive the parsing.
void add_options(CLI::App& app, Options& options);

}  // namespace hvd::peers
