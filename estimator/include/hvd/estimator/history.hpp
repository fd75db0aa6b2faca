// Losses and metrics of a fit, epoch by epoch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd {

/// Means over rows, whatever rank they were with.
struct RowMeans {
  std::int64_t rows = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics{};  ///< in the order of the parameters

  friend bool operator==(const RowMeans&, const RowMeans&) = default;
};

struct EpochHistory {
  int epoch = 0;             ///< from 1
  int ranks = 0;             ///< that trained it
  double learning_rate = 0;  ///< effective: that of the first group, times the ranks
  double seconds = 0;
  RowMeans train{};
  RowMeans validation{};  ///< no rows: there was none

  friend bool operator==(const EpochHistory&, const EpochHistory&) = default;
};

struct History {
  std::vector<EpochHistory> epochs{};

  /// A list of objects: "epoch", "ranks", "learning_rate", "seconds", "train", "validation" (null
  /// without one), each of the latter with "rows", "loss" and the metrics by name. A number that
  /// JSON does not know (NaN) is null.
  [[nodiscard]] std::string to_json() const;
  /// Throws Errc::protocol naming what is wrong.
  [[nodiscard]] static History from_json(std::string_view json);
  /// A chart in SVG: the loss and each metric over the epochs, of training and of validation.
  [[nodiscard]] std::string to_svg(std::string_view title) const;

  friend bool operator==(const History&, const History&) = default;
};

}  // namespace hvd
