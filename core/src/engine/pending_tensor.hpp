// Holds an operation of this rank between `submit` and the end of its work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <hvd/core/request.hpp>
#include <hvd/core/work.hpp>

#include "engine/work_state.hpp"
#include "policy/operation_key.hpp"

namespace hvd::detail {

struct PendingTensor {
  explicit PendingTensor(Submission&& asked = {}, std::shared_ptr<WorkDriver> driver = nullptr)
      : submission(std::move(asked)), work(std::move(driver)) {}

  Submission submission;
  WorkState work;                  ///< its `Work` keeps the whole tensor alive: see `work_of`
  Clock::time_point since;         ///< when it was submitted
  Clock::time_point scheduled_at;  ///< when it left the negotiation or its turn was taken
  // The thread that runs the batch writes these.
  std::exception_ptr error;           ///< concerns this tensor on this rank alone
  std::vector<std::byte> substitute;  ///< memory for the result when the user's allocation failed

  bool stand_in = false;  ///< for an operation of other ranks, on a rank that has joined

  /// Maps a process set and group to its number of pending members.
  using Groups = std::map<OperationKey, std::size_t>;

  // The table guards these.
  Groups::value_type* group = nullptr;  ///< null where it has no group
  OperationKeyView key;                 ///< the key of the request
  std::uint64_t order = 0;              ///< position among this rank's submissions
  std::uint32_t segment = 0;            ///< see Announcement
  bool scheduled = false;               ///< part of a batch that runs, or that is about to
  bool planned = false;                 ///< has a place in the frozen schedule
};

/// Returns the `Work` that the user holds. It keeps the tensor alive.
[[nodiscard]] inline Work work_of(std::shared_ptr<PendingTensor> tensor) {
  WorkState* const state = &tensor->work;
  return Work(std::shared_ptr<WorkState>(std::move(tensor), state));
}

}  // namespace hvd::detail
