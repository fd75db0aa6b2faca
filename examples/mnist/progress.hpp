// What a person sees while the ranks train: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace mnist {

class Progress {
 public:
  /// Rank 0 prints, the others are silent.
  explicit Progress(bool speaks);

  /// Redraws the bar, at most ten times a second.
  void step(int epoch, int epochs, std::int64_t done, std::int64_t total, double loss);
  /// A whole line, which takes the bar's place.
  void line(const std::string& text);

 private:
  bool speaks_;
  bool bar_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace mnist
