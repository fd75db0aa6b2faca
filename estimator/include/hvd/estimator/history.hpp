// Holds the losses and metrics of a fit, epoch by epoch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd {

/// Means over the rows of all ranks.
struct RowMeans {
  std::int64_t rows = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics{};  ///< in the order of the parameters

  friend bool operator==(const RowMeans&, const RowMeans&) = default;
};

struct EpochHistory {
  int epoch = 0;  ///< from 1
  int ranks = 0;  ///< the number of ranks that trained it
  /// The rate of the optimizer's first group. With `scale_learning_rate` it is the program's rate
  /// times `ranks`.
  double learning_rate = 0;
  double seconds = 0;
  RowMeans train{};
  RowMeans validation{};  ///< has no rows when there was no validation

  friend bool operator==(const EpochHistory&, const EpochHistory&) = default;
};

struct History {
  std::vector<EpochHistory> epochs{};

  /// Returns a JSON list of objects with the keys "epoch", "ranks", "learning_rate", "seconds",
  /// "train" and "validation" (null where there was no validation). "train" and "validation" have
  /// the keys "rows" and "loss", and a key for each metric. NaN, which JSON does not have, is null.
  [[nodiscard]] std::string to_json() const;
  /// Reads such a list. Throws Errc::protocol, with a text that says what is wrong.
  [[nodiscard]] static History from_json(std::string_view json);
  /// Returns an SVG chart of the loss and each metric over the epochs, for training and validation.
  [[nodiscard]] std::string to_svg(std::string_view title) const;

  friend bool operator==(const History&, const History&) = default;
};

}  // namespace hvd
