// Notices that the ranks repeat their operations, and makes a plan of the repeated cycle. It does
// no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "policy/frozen_schedule.hpp"
#include "policy/fusion_plan.hpp"
#include "policy/negotiator.hpp"
#include "policy/operation_key.hpp"

namespace hvd::detail {

/// Divides the negotiated tensors into rounds: a round ends before a name that it already has. The
/// first round after a reset may begin in the middle of a cycle. So operations at its end are moved
/// to the next round if no rank received a result between them and the repeated operation (they
/// have the same segments, see `Announcement`). A schedule is learned when the last rounds repeat
/// with a period of at most `kMaxPeriod` rounds. It is then about to begin again, and its cycle is
/// one period.
class ScheduleLearner {
 public:
  static constexpr int kMaxPeriod = 4;
  static constexpr std::size_t kMaxRound = 20'000;  ///< tensors; longer rounds are not learned

  struct Settings {
    int repetitions = 3;  ///< identical periods before a plan is made, at least 2; 0: never
    BucketSizes sizes;
  };

  explicit ScheduleLearner(Settings settings) : settings_(settings) {}

  /// Records tensors of one process set that rank 0 has told the ranks to run, in order.
  void observe(std::span<const ReadyTensor> batch);
  /// Forgets the rounds, because something happened that no plan can hold.
  void reset();
  /// Returns the buckets of one cycle when the ranks are at the end of a period. Each bucket is one
  /// collective.
  [[nodiscard]] std::optional<std::vector<FusedTensors>> learned() const;

  /// Records that from now on the ranks repeat `cycle` without negotiation.
  void frozen(std::vector<FusedTensors> cycle);
  /// Records that the ranks negotiate again, after `cycles` whole cycles and the given buckets of
  /// the next one.
  /// The same rounds are frozen again after one repetition. After each plan in a row that did not
  /// last two cycles, more repetitions are needed.
  void thawed(std::uint64_t cycles, std::span<const std::size_t> buckets_of_this_cycle);

  /// Takes effect with the next plan.
  void set_bucket_sizes(const BucketSizes& sizes) noexcept { settings_.sizes = sizes; }

 private:
  friend struct StateReader;  // tests/explore reads and copies the whole state
  struct Round {
    std::uint64_t fingerprint = 0;  // of the tensors, whatever their order
    std::vector<ReadyTensor> tensors;
    std::set<OperationKey> keys;

    void add(const ReadyTensor& tensor);
  };

  void observe(const ReadyTensor& tensor);
  /// Takes from the open round the tensors at its end that were submitted in the same segment as
  /// `first`, which begins the next round, so that they can share a bucket with it.
  [[nodiscard]] Round take_beginning_of_next(const ReadyTensor& first);
  [[nodiscard]] int period() const;
  [[nodiscard]] bool ends_with_known() const;
  [[nodiscard]] std::size_t wanted_history() const noexcept;

  Settings settings_;
  std::deque<std::uint64_t> closed_;  // fingerprints of rounds
  std::deque<Round> recent_;          // the last rounds, of which the very last is open
  std::vector<std::uint64_t> known_;  // the rounds of the cycle that was frozen last
  std::vector<FusedTensors> cycle_;
  int patience_ = 0;  // number of repetitions needed beyond the usual ones
};

/// Divides the tensors of one cycle, given in the order in which they became ready, into buckets. A
/// bucket holds tensors that may share a call and on no rank depended on each other's result, up to
/// the threshold. The first and the last of several buckets are as small as the edge says, so that
/// communication begins early and ends soon after the backward pass. The result is ordered by when
/// a bucket is complete.
[[nodiscard]] std::vector<FusedTensors> make_buckets(std::vector<ReadyTensor> tensors,
                                                     const BucketSizes& sizes);

}  // namespace hvd::detail
