// Parses the command line of the MNIST trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mnist {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int epochs = 3;
  std::int64_t batch_size = 64;   ///< per rank
  std::int64_t global_batch = 0;  ///< the batch of all ranks together; 0: batch_size per rank
  double lr = 0.03;               ///< for a global batch of 64; it is scaled with the batch
  double momentum = 0.9;
  std::uint64_t seed = 1;
  bool dropout = true;
  bool sync = true;
  std::optional<std::int64_t> steps;  ///< training ends after this many steps, or after `epochs`
  std::int64_t limit = 0;             ///< the number of training images that are used; 0: all
  std::string json;
  std::string plot;
  std::string save_parameters;
};

inline constexpr int kUsageError = 64;  // EX_USAGE of sysexits.h

/// Fills `options`. Returns an exit status when the program must end: 0 after --help, kUsageError
/// after an error, which it has printed to stderr.
[[nodiscard]] std::optional<int> parse(int argc, char** argv, Options& options);

}  // namespace mnist
