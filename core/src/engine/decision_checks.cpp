#include "engine/decision_checks.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "policy/fusion_plan.hpp"

namespace hvd::detail {
namespace {

/// Tells whether a backend runs this kind. Rank 0 decides on joins and on process sets with other
/// messages.
bool is_collective(OpKind kind) {
  return kind != OpKind::join && kind != OpKind::add_process_set &&
         kind != OpKind::remove_process_set;
}

/// Tells whether `rows` can be those of all members: there is a number for each, and the bytes of
/// the result do not overflow.
bool are_possible(const std::vector<std::int64_t>& rows, const Request& request,
                  std::size_t members) {
  if (rows.size() != members) return false;
  std::int64_t sum = 0;
  for (const std::int64_t each : rows) {
    if (each < 0 || __builtin_add_overflow(sum, each, &sum)) return false;
  }
  const Shape row(request.shape.begin() + 1, request.shape.end());
  const auto row_bytes = element_count(row) * static_cast<std::int64_t>(size_of(request.dtype));
  return !__builtin_mul_overflow(sum, row_bytes, &sum);
}

/// Tells whether the member at `place`, which is this rank, has asked for its part of the rows: for
/// an allgather the rows that it gives, for an alltoall those that it sends to itself.
bool are_of(const Request& request, const std::vector<std::int64_t>& rows, std::size_t place) {
  if (request.kind == OpKind::allgather) return rows[place] == request.shape.front();
  return place < request.splits.size() && rows[place] == request.splits[place];
}

std::string not_one(const Request& first, const Request& second) {
  return fmt::format("'{}' and '{}' cannot be one collective", first.name, second.name);
}

std::string wrong_rows(const Request& request) {
  return fmt::format("the numbers of rows of '{}' do not fit this rank's operation", request.name);
}

}  // namespace

std::string problem_with(const LocalBatch& batch, const std::vector<int>& members, int rank) {
  const Request& first = batch.tensors.front()->submission.request;
  if (!is_collective(first.kind)) return fmt::format("'{}' is no collective", first.name);
  const auto at = std::lower_bound(members.begin(), members.end(), rank);
  if (at == members.end() || *at != rank) {
    return fmt::format("this rank is not in the process set of '{}'", first.name);
  }
  const auto place = static_cast<std::size_t>(at - members.begin());
  if (batch.contributors < 0 || batch.contributors > std::ssize(members)) {
    return fmt::format("'{}' has {} contributors", first.name, batch.contributors);
  }
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const PendingTensor& tensor = *batch.tensors[i];
    const Request& request = tensor.submission.request;
    if (i > 0 && !may_share(first, request)) return not_one(first, request);
    // A rank that has joined has nothing to give.
    if (tensor.stand_in && request.kind != OpKind::allreduce && request.kind != OpKind::barrier) {
      return fmt::format("'{}' needs every rank, but this rank has joined", request.name);
    }
    const bool has_rows = i < batch.rows.size();
    if (has_rows != needs_rows(request.kind)) return wrong_rows(request);
    if (has_rows && !(are_possible(batch.rows[i], request, members.size()) &&
                      are_of(request, batch.rows[i], place))) {
      return wrong_rows(request);
    }
  }
  return {};
}

std::string problem_with(const FrozenSchedule& plan, const MembersOf& members_of) {
  for (const PlannedBatch& batch : plan.batches) {
    const Request& first = batch.requests.front();
    if (!is_collective(first.kind) || first.kind == OpKind::alltoall) {
      return fmt::format("'{}' cannot be in a frozen schedule", first.name);
    }
    const std::vector<int> members = members_of(batch.process_set);
    // A plan names the members of every set but that of all ranks.
    const bool has_members =
        batch.process_set == 0 ? batch.members.empty() : batch.members == members;
    if (members.empty() || !has_members) {
      return fmt::format("'{}' has other members than process set {}", first.name,
                         batch.process_set);
    }
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      const Request& request = batch.requests[i];
      if (request.process_set != batch.process_set || (i > 0 && !may_share(first, request))) {
        return not_one(first, request);
      }
      const bool has_rows = i < batch.rows.size();
      if (has_rows != needs_rows(request.kind)) return wrong_rows(request);
      if (has_rows && !are_possible(batch.rows[i], request, members.size())) {
        return wrong_rows(request);
      }
    }
  }
  return {};
}

}  // namespace hvd::detail
