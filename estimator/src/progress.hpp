// What a person sees while a model is trained: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <hvd/estimator/history.hpp>

namespace hvd {

class Progress {
 public:
  /// `verbose` as in the parameters; a rank that does not speak is silent.
  Progress(bool speaks, int verbose);

  /// Redraws the bar, at most ten times a second.
  void step(int epoch, int epochs, std::int64_t done, std::int64_t total, double loss);
  void epoch(const EpochHistory& history, int epochs);
  /// A whole line, which takes the bar's place.
  void line(const std::string& text);

 private:
  bool speaks_;
  bool bar_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace hvd
