// Shows the progress of training, as a bar on a terminal and as plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <hvd/estimator/history.hpp>

namespace hvd::detail {

class Progress {
 public:
  /// `verbose` is that of `EstimatorOptions`. Only one rank shows progress.
  Progress(bool speaks, int verbose);

  /// Redraws the bar, at most ten times a second.
  void step(int epoch, int epochs, std::int64_t done, std::int64_t total, double loss);
  void epoch(const EpochHistory& history, int epochs);
  /// Prints a whole line in place of the bar.
  void line(const std::string& text);

 private:
  bool speaks_;
  bool bar_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace hvd::detail
