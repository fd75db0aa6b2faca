// Searches for the bucket sizes with the shortest step. It does no I/O: the caller reports step
// times and gets the sizes to measure next.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "policy/fusion_plan.hpp"

namespace hvd::detail {

/// The search moves along one coordinate after the other, first the threshold, then the edge. All
/// candidates are measured twice, and the best three and the start three times more (successive
/// halving, Jamieson & Talwalkar 2016, in two steps). A duel of the winner with the start follows,
/// which new measurements alone decide. In each round every candidate is measured once and compared
/// with the others of that round, so that what slows down everything changes no comparison.
/// docs/internals/autotuning.md gives the reasons.
class Autotuner {
 public:
  static constexpr int kMaxTrials = 87;
  /// A candidate replaces the start if it is faster by this part in the median of a duel, and loses
  /// at most two of the duel's rounds.
  static constexpr double kMargin = 0.03;
  /// The rounds of a duel. By chance a candidate that is no faster loses at most two of eleven once
  /// in thirty times.
  static constexpr int kDuelRounds = 11;

  struct Settings {
    BucketSizes start;
    /// The bytes that one cycle moves. Larger thresholds make no difference. 0 means unknown.
    std::size_t cycle_bytes = 0;
  };

  /// The search is finished at once when the start has no fusion.
  explicit Autotuner(const Settings& settings);

  /// Returns the sizes to measure next, or nothing when the search is finished.
  [[nodiscard]] std::optional<BucketSizes> propose() const;
  /// Records that a step took `seconds` with the sizes that were proposed.
  void measured(double seconds);

  [[nodiscard]] bool finished() const noexcept { return stage_ == Stage::finished; }
  /// Returns the choice when the search is finished, and the best candidate so far before that.
  [[nodiscard]] BucketSizes best() const { return candidates_[best_].sizes; }
  /// Returns the median of the step times measured with the best candidate; 0 when it was never
  /// measured.
  [[nodiscard]] double best_seconds() const;
  /// Returns the step time of the choice divided by that of the start, when the search is finished.
  [[nodiscard]] double best_ratio() const;

 private:
  enum class Stage { warm_up, thresholds, edges, duel, finished };

  struct Candidate {
    BucketSizes sizes;
    std::vector<double> seconds{};
    std::vector<double> ratios{};  // by round: to the median of the round; in a duel to the start
  };

  void begin_thresholds();
  void begin_edges();
  void begin_duel();
  void begin_stage(Stage stage, const std::vector<BucketSizes>& sizes);
  void begin_round();
  void end_round();
  void sift();
  void judge();
  [[nodiscard]] std::size_t index_of(const BucketSizes& sizes);

  Settings settings_;
  Stage stage_ = Stage::warm_up;
  std::vector<Candidate> candidates_;     // all candidates so far; the first is the start
  std::vector<std::size_t> challengers_;  // still in this stage, without the start
  std::vector<std::size_t> order_;        // of this round
  std::size_t next_ = 0;                  // in `order_`
  int rounds_ = 0;                        // of this stage
  std::size_t best_ = 0;
};

}  // namespace hvd::detail
