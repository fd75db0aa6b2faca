// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mnist {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int epochs = 3;
  std::int64_t batch_size = 64;   ///< per rank
  std::int64_t global_batch = 0;  ///< of all ranks together; 0: batch_size each
  double lr = 0.03;               ///< for a global batch of 64; scaled with it
  double momentum = 0.9;
  std::uint64_t seed = 1;
  bool dropout = true;
  bool sync = true;
  std::optional<std::int64_t> steps;  ///< stop after so many, whatever the epochs
  std::int64_t limit = 0;             ///< use only the first training images; 0: all
  std::string json;
  std::string plot;
  std::string save_parameters;
};

inline constexpr int kUsageError = 64;  // EX_USAGE of sysexits.h

/// Fills `options`. An exit status when there is nothing to train: 0 after --help, kUsageError
/// after saying on stderr what is wrong.
[[nodiscard]] std::optional<int> parse(int argc, char** argv, Options& options);

}  // namespace mnist
