// Declares the decisions of rank 0, which every rank carries out in the order decided.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>

#include "policy/frozen_schedule.hpp"

namespace hvd::detail {

/// The members run these tensors as one collective of a process set. Each finds everything else in
/// its own tensor table.
struct FusedBatch {
  std::int32_t process_set = 0;
  std::vector<std::string> names;
  /// By name: for an allgather the rows that each member contributes, for an alltoall the rows that
  /// the receiver of this message gets from each member.
  std::vector<std::vector<std::int64_t>> rows;
  /// Has the request of each name. It is given only while some rank has joined, because that rank's
  /// table does not have the operation.
  std::vector<Request> requests;
  /// The number that an average divides by; 0 means the size of the set.
  std::int32_t contributors = 0;

  friend bool operator==(const FusedBatch&, const FusedBatch&) = default;
};

/// The operation fails on every rank that has it pending; the context stays usable.
struct Rejection {
  std::int32_t process_set = 0;
  std::string name;
  Errc code = Errc::mismatch;
  std::string message;

  friend bool operator==(const Rejection&, const Rejection&) = default;
};

/// The operation `name` has made a process set of these ranks. All ranks of the context get it.
struct SetAdded {
  std::string name;
  std::int32_t id = 0;
  std::vector<int> ranks;

  friend bool operator==(const SetAdded&, const SetAdded&) = default;
};

struct SetRemoved {
  std::string name;
  std::int32_t id = 0;

  friend bool operator==(const SetRemoved&, const SetRemoved&) = default;
};

/// Every rank has joined, rank `last` after all others, so all joins are complete.
struct AllJoined {
  int last = 0;

  friend bool operator==(const AllJoined&, const AllJoined&) = default;
};

/// From here on the ranks repeat the plan without negotiation.
struct Freeze {
  std::uint32_t epoch = 0;
  FrozenSchedule plan;

  friend bool operator==(const Freeze&, const Freeze&) = default;
};

using Decision = std::variant<FusedBatch, Rejection, SetAdded, SetRemoved, AllJoined, Freeze>;

}  // namespace hvd::detail
