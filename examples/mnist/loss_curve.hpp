// The loss curve as a picture.
#pragma once

#include <string>
#include <vector>

namespace mnist {

struct LossCurve {
  std::string title;
  std::vector<double> losses;       ///< one per step
  std::vector<std::size_t> epochs;  ///< the step at which each epoch ended
};

/// A chart in SVG: every step's loss in light grey, a running mean over it, epochs as vertical
/// lines.
[[nodiscard]] std::string to_svg(const LossCurve& curve);

}  // namespace mnist
