#include "engine/decision_checks.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "policy/fusion_plan.hpp"

namespace hvd::detail {
namespace {

/// Tells whether so many rows are an allgather's, or those that an alltoall gives this rank, which
/// is the member at `place`.
bool are_rows_of(const Request& request, const std::vector<std::int64_t>& rows, std::size_t place) {
  std::int64_t bytes = 0;
  for (const std::int64_t each : rows) {
    if (each < 0 || __builtin_add_overflow(bytes, each, &bytes)) return false;
  }
  const Shape row(request.shape.begin() + 1, request.shape.end());
  const auto row_bytes = element_count(row) * static_cast<std::int64_t>(size_of(request.dtype));
  if (__builtin_mul_overflow(bytes, row_bytes, &bytes)) return false;
  if (request.kind == OpKind::allgather) return rows[place] == request.shape.front();
  return place < request.splits.size() && rows[place] == request.splits[place];
}

/// Tells whether a backend carries out such operations. Rank 0 decides on the others in other ways.
bool is_collective(OpKind kind) {
  return kind != OpKind::join && kind != OpKind::add_process_set &&
         kind != OpKind::remove_process_set;
}

}  // namespace

std::string problem_with(const LocalBatch& batch, const std::vector<int>& members, int rank) {
  const Request& first = batch.tensors.front()->submission.request;
  if (!is_collective(first.kind)) return fmt::format("'{}' is no collective", first.name);
  const auto at = std::lower_bound(members.begin(), members.end(), rank);
  if (at == members.end() || *at != rank) return fmt::format("'{}' is of other ranks", first.name);
  const auto place = static_cast<std::size_t>(at - members.begin());
  if (batch.contributors < 0 || batch.contributors > std::ssize(members)) {
    return fmt::format("'{}' has {} contributors", first.name, batch.contributors);
  }
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const PendingTensor& tensor = *batch.tensors[i];
    const Request& request = tensor.submission.request;
    if (i > 0 && !may_share(first, request)) {
      return fmt::format("'{}' and '{}' are no single collective", first.name, request.name);
    }
    const bool has_rows = i < batch.rows.size();
    const bool is_good = needs_rows(request.kind) ? has_rows && !tensor.stand_in &&
                                                        batch.rows[i].size() == members.size() &&
                                                        are_rows_of(request, batch.rows[i], place)
                                                  : !has_rows;
    if (!is_good) return fmt::format("'{}' has the rows of another operation", request.name);
  }
  return {};
}

std::string problem_with(const FrozenSchedule& plan, int size) {
  for (const PlannedBatch& batch : plan.batches) {
    const Request& first = batch.requests.front();
    if (!is_collective(first.kind)) return fmt::format("'{}' is no collective", first.name);
    if (!batch.members.empty() && batch.members.back() >= size) {
      return fmt::format("'{}' is of rank {}", first.name, batch.members.back());
    }
    const auto members =
        batch.members.empty() ? static_cast<std::size_t>(size) : batch.members.size();
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      const Request& request = batch.requests[i];
      if (request.kind == OpKind::alltoall || request.process_set != batch.process_set ||
          (i > 0 && !may_share(first, request))) {
        return fmt::format("'{}' and '{}' are no single collective", first.name, request.name);
      }
      const bool has_rows = i < batch.rows.size();
      if (has_rows != needs_rows(request.kind) || (has_rows && batch.rows[i].size() != members)) {
        return fmt::format("'{}' has the rows of another operation", request.name);
      }
    }
  }
  return {};
}

}  // namespace hvd::detail
