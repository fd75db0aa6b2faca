// Follows one rank's part in a frozen schedule: counts which tensors of the next collectives this
// rank has submitted. It does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "policy/frozen_schedule.hpp"
#include "policy/operation_key.hpp"

namespace hvd::detail {

/// Numbers the collectives of a frozen schedule over all its cycles. A sequence number is the same
/// on all ranks, is never 0, and grows from cycle to cycle and from freeze to freeze.
using SequenceNumber = std::uint64_t;
/// The epochs of frozen schedules are below this number, or else sequence numbers would overflow.
inline constexpr std::uint32_t kMostEpochs = std::uint32_t{1} << 24;

class Replay {
 public:
  /// `epoch` grows with every freeze.
  Replay(FrozenSchedule plan, std::uint32_t epoch, int rank);

  /// Tells whether the next operation of this name in the schedule is `request`, with its shape and
  /// scales.
  [[nodiscard]] bool holds(const Request& request) const;
  /// Counts the operation as submitted. Returns false when the schedule does not hold it next.
  [[nodiscard]] bool submitted(const Request& request) {
    return submitted(request, view_of(request));
  }
  [[nodiscard]] bool submitted(const Request& request, const OperationKeyView& key);

  /// Tells whether this rank has submitted all tensors of its next collective.
  [[nodiscard]] bool ready() const noexcept;
  struct Turn {
    SequenceNumber sequence = 0;
    std::uint64_t digest = 0;
    const PlannedBatch* batch = nullptr;       ///< of the plan, which lives as long as the replay
    std::span<const OperationKeyView> keys{};  ///< of the batch's requests
  };
  /// Begins the next collective, which is `ready()`.
  [[nodiscard]] Turn begin();
  /// Returns the sequence number of the last collective begun; 0 means none.
  [[nodiscard]] SequenceNumber begun() const noexcept { return begun_; }

  /// Tells whether operations of this rank wait while the next collective cannot begin, because
  /// this rank itself has not submitted all of it.
  [[nodiscard]] bool held_back() const noexcept { return waiting_ > 0 && !ready(); }
  /// Returns the number of collectives begun, over all cycles.
  [[nodiscard]] std::uint64_t turns() const noexcept { return next_; }

  [[nodiscard]] const FrozenSchedule& plan() const noexcept { return plan_; }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }

 private:
  friend struct StateReader;  // tests/explore reads and copies the whole state
  struct Occurrence {
    std::size_t turn = 0;     // index into `mine_`
    std::size_t request = 0;  // index into the batch
  };
  struct Name {
    std::vector<Occurrence> occurrences;  // in the order of the cycle
    std::size_t next = 0;                 // index of the occurrence that comes next
    std::uint64_t cycle = 0;              // the cycle of that occurrence
  };

  [[nodiscard]] bool comes_next(const Name& name, const Request& request) const;
  [[nodiscard]] std::size_t tensors_of(std::uint64_t turn) const;

  FrozenSchedule plan_;
  std::uint64_t digest_;
  std::uint32_t epoch_;
  int rank_;
  std::vector<std::size_t> mine_;  // batches of the plan that this rank takes part in
  std::vector<std::vector<OperationKeyView>> keys_;  // by index in `mine_`
  OperationMap<Name> names_;                         // by the names in the plan
  std::uint64_t next_ = 0;                           // turns begun, over all cycles
  std::deque<std::size_t> missing_;  // of turn next_, next_ + 1, …: tensors not submitted yet
  std::size_t waiting_ = 0;          // tensors submitted and not begun
  SequenceNumber begun_ = 0;
};

/// Holds the batch of a plan that a sequence number means, and the number of cycles before it.
struct SchedulePosition {
  std::uint32_t epoch = 0;
  std::uint64_t cycle = 0;
  std::size_t batch = 0;
};
[[nodiscard]] SequenceNumber sequence_of(const SchedulePosition& position,
                                         std::size_t batches) noexcept;
[[nodiscard]] SchedulePosition position_of(SequenceNumber sequence, std::size_t batches) noexcept;

}  // namespace hvd::detail
