// Declares the main function of a program with an estimator, for hvd_spark and the command line.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <hvd/estimator/estimator_options.hpp>

namespace hvd {

/// The arguments of the program.
struct EstimatorArguments {
  std::string command{};                 ///< fit, transform or columns
  std::vector<std::string> rest{};       ///< the other arguments, in order
  std::optional<std::string> request{};  ///< JSON of `HVD_ESTIMATOR`; fit only
};

using MakeEstimator = std::function<EstimatorOptions(const EstimatorArguments&)>;

/// Runs `program fit|transform|columns …`; docs/how-to/estimator.md lists the arguments. `make`
/// returns the program's own parameters, and those in HVD_ESTIMATOR replace them. Returns the exit
/// status: 0 on success; 64 when the command line is wrong, after a message on stderr; 1 for all
/// other errors, after one line on stderr. transform and columns write their results to standard
/// output; there, other output of the program goes to stderr.
[[nodiscard]] int estimator_main(int argc, char** argv, const MakeEstimator& make);

}  // namespace hvd
