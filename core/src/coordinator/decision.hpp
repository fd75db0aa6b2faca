// What rank 0 decides and every rank carries out, in the order decided.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>

#include "coordinator/plan.hpp"

namespace hvd {

/// Run these tensors as one collective of a process set. Every member finds the rest in its own
/// tensor table.
struct Batch {
  std::int32_t process_set = 0;
  std::vector<std::string> names;
  /// Per name. Allgather: the rows that each member contributes. Alltoall: the rows that the
  /// receiver of this message gets from each member.
  std::vector<std::vector<std::int64_t>> rows;
  /// Per name, what was asked for; only while some rank has joined, which has nothing in its table.
  std::vector<Request> requests;
  /// What an average divides by; 0: the size of the set.
  std::int32_t contributors = 0;

  friend bool operator==(const Batch&, const Batch&) = default;
};

/// Fail this operation on every rank that has it pending; the context stays usable.
struct Rejection {
  std::int32_t process_set = 0;
  std::string name;
  Errc code = Errc::mismatch;
  std::string message;

  friend bool operator==(const Rejection&, const Rejection&) = default;
};

/// The operation `name` has made a process set of these ranks. For every rank.
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

/// Every rank has joined, `last` after all others. Their joins are over.
struct AllJoined {
  int last = 0;

  friend bool operator==(const AllJoined&, const AllJoined&) = default;
};

/// From here on the plan is repeated without negotiation.
struct Freeze {
  std::uint32_t epoch = 0;
  Plan plan;

  friend bool operator==(const Freeze&, const Freeze&) = default;
};

using Decision = std::variant<Batch, Rejection, SetAdded, SetRemoved, AllJoined, Freeze>;

}  // namespace hvd
