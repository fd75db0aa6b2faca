// Draws the loss curve as a picture.
#pragma once

#include <string>
#include <vector>

namespace mnist {

struct LossCurve {
  std::string title;
  std::vector<double> losses;       ///< one per step
  std::vector<std::size_t> epochs;  ///< the step at which each epoch ended
};

/// Returns an SVG chart with the loss of every step in light grey, its running mean, and a vertical
/// line for each epoch.
[[nodiscard]] std::string to_svg(const LossCurve& curve);

}  // namespace mnist
