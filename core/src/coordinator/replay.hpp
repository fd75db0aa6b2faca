// One rank's part in a frozen schedule. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "coordinator/operation_key.hpp"
#include "coordinator/plan.hpp"

namespace hvd {

/// Where a collective stands in all cycles of a frozen schedule: grows from cycle to cycle and from
/// freeze to freeze, is the same on all ranks, and is never 0.
using Ticket = std::uint64_t;

class Replay {
 public:
  /// `epoch` grows with every freeze.
  Replay(Plan plan, std::uint32_t epoch, int rank);

  /// The schedule has this operation next under its name: not with another shape or scale.
  [[nodiscard]] bool holds(const Request& request) const;
  /// Takes the next place of this operation; false when the schedule does not hold it.
  [[nodiscard]] bool submitted(const Request& request) {
    return submitted(request, view_of(request));
  }
  [[nodiscard]] bool submitted(const Request& request, const OperationKeyView& key);

  /// The next collective of this rank is complete.
  [[nodiscard]] bool ready() const noexcept;
  struct Turn {
    Ticket ticket = 0;
    std::uint64_t digest = 0;
    const PlannedBatch* batch = nullptr;       ///< of the plan, which lives as long as the replay
    std::span<const OperationKeyView> keys{};  ///< of the batch's requests
  };
  /// Begins the next collective; `ready()`.
  [[nodiscard]] Turn begin();
  /// The last one begun; 0: none.
  [[nodiscard]] Ticket begun() const noexcept { return begun_; }

  /// Operations of this rank wait, and the next collective does not begin because this rank itself
  /// has not submitted all of it.
  [[nodiscard]] bool held_back() const noexcept { return waiting_ > 0 && !ready(); }
  /// Collectives begun, over all cycles.
  [[nodiscard]] std::uint64_t turns() const noexcept { return next_; }

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] std::uint32_t epoch() const noexcept { return epoch_; }

 private:
  struct Occurrence {
    std::size_t turn = 0;     // place in `mine_`
    std::size_t request = 0;  // place in the batch
  };
  struct Name {
    std::vector<Occurrence> occurrences;  // in the order of the cycle
    std::size_t next = 0;                 // which of them comes next
    std::uint64_t cycle = 0;              // in which cycle
  };

  [[nodiscard]] bool comes_next(const Name& name, const Request& request) const;
  [[nodiscard]] std::size_t tensors_of(std::uint64_t turn) const;

  Plan plan_;
  std::uint64_t digest_;
  std::uint32_t epoch_;
  int rank_;
  std::vector<std::size_t> mine_;  // batches of the plan that this rank takes part in
  std::vector<std::vector<OperationKeyView>> keys_;  // of them
  OperationMap<Name> names_;                         // by the names in the plan
  std::uint64_t next_ = 0;                           // turns begun, over all cycles
  std::deque<std::size_t> missing_;  // of turn next_, next_ + 1, …: tensors not submitted yet
  std::size_t waiting_ = 0;          // tensors submitted and not begun
  Ticket begun_ = 0;
};

/// The batch that a ticket of this plan stands for, and the cycles before it.
struct TicketPlace {
  std::uint32_t epoch = 0;
  std::uint64_t cycle = 0;
  std::size_t batch = 0;
};
[[nodiscard]] Ticket ticket_of(const TicketPlace& place, std::size_t batches) noexcept;
[[nodiscard]] TicketPlace place_of(Ticket ticket, std::size_t batches) noexcept;

}  // namespace hvd
