// Makes a program of an estimator, for hvd_spark and for the command line.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <hvd/estimator/estimator_options.hpp>

namespace hvd {

/// What the program was called with.
struct EstimatorArguments {
  std::string command{};                 ///< fit, transform or columns
  std::vector<std::string> rest{};       ///< the arguments that are not ours, in order
  std::optional<std::string> request{};  ///< JSON of `HVD_ESTIMATOR`; fit only
};

using MakeEstimator = std::function<EstimatorOptions(const EstimatorArguments&)>;

/// `main` of such a program: `program fit|transform|columns …`, docs/estimator.md has the table.
/// `make` gives what is the program's own; what HVD_ESTIMATOR says comes over it. Returns the exit
/// status: 0; 64 after saying on stderr what is wrong with the command line; 1 with one line for
/// all other errors. Standard output of transform and columns is theirs: what the program itself
/// prints there goes to stderr.
[[nodiscard]] int estimator_main(int argc, char** argv, const MakeEstimator& make);

}  // namespace hvd
