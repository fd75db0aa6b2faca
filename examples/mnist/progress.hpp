// Shows the progress of training, as a bar on a terminal and as plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace mnist {

class Progress {
 public:
  /// `speaks` is true on rank 0; the other ranks print nothing.
  explicit Progress(bool speaks);

  /// Redraws the bar, at most ten times a second.
  void step(int epoch, int epochs, std::int64_t done, std::int64_t total, double loss);
  /// Prints a whole line in place of the bar.
  void line(const std::string& text);

 private:
  bool speaks_;
  bool bar_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace mnist
