#include "policy/replay.hpp"

#include <utility>

#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::detail {
namespace {

constexpr int kEpochShift = 40;  // 2⁴⁰ collectives in one frozen schedule

/// Compares what this rank, a member of the batch, asks for with the plan. The index of the device
/// is each rank's own.
bool matches(const Request& request, const PlannedBatch& batch, std::size_t index, int member) {
  if (batch.rows.empty() && request == batch.requests[index]) return true;  // nearly always
  Request planned = batch.requests[index];
  planned.device.index = request.device.index;
  if (!batch.rows.empty()) {
    planned.shape.front() = batch.rows[index][static_cast<std::size_t>(member)];
  }
  return request == planned;
}

std::uint64_t mix(std::uint64_t digest, std::uint64_t batch) {
  return splitmix64(digest + kGoldenRatio64 * (batch + 1));
}

}  // namespace

SequenceNumber sequence_of(const SchedulePosition& position, std::size_t batches) noexcept {
  return (std::uint64_t{position.epoch} << kEpochShift) + position.cycle * batches +
         position.batch + 1;
}

SchedulePosition position_of(SequenceNumber sequence, std::size_t batches) noexcept {
  const std::uint64_t index = (sequence & ((std::uint64_t{1} << kEpochShift) - 1)) - 1;
  return {static_cast<std::uint32_t>(sequence >> kEpochShift), index / batches, index % batches};
}

Replay::Replay(FrozenSchedule plan, std::uint32_t epoch, int rank)
    : plan_(std::move(plan)), digest_(digest_of(plan_)), epoch_(epoch), rank_(rank) {
  for (std::size_t batch = 0; batch < plan_.batches.size(); ++batch) {
    const PlannedBatch& planned = plan_.batches[batch];
    if (member_index(rank_, planned) < 0) continue;
    std::vector<OperationKeyView>& keys = keys_.emplace_back();
    for (std::size_t request = 0; request < planned.requests.size(); ++request) {
      keys.push_back(view_of(planned.requests[request]));
      names_[keys.back()].occurrences.push_back({mine_.size(), request});
    }
    mine_.push_back(batch);
  }
}

std::size_t Replay::tensors_of(std::uint64_t turn) const {
  return plan_.batches[mine_[turn % mine_.size()]].requests.size();
}

bool Replay::comes_next(const Name& name, const Request& request) const {
  const Occurrence& occurrence = name.occurrences[name.next];
  const PlannedBatch& batch = plan_.batches[mine_[occurrence.turn]];
  return matches(request, batch, occurrence.request, member_index(rank_, batch));
}

bool Replay::holds(const Request& request) const {
  const auto at = names_.find(view_of(request));
  return at != names_.end() && comes_next(at->second, request);
}

bool Replay::submitted(const Request& request, const OperationKeyView& key) {
  const auto at = names_.find(key);
  if (at == names_.end() || !comes_next(at->second, request)) return false;
  Name& name = at->second;
  const Occurrence& occurrence = name.occurrences[name.next];

  const std::uint64_t turn = name.cycle * mine_.size() + occurrence.turn;
  if (++name.next == name.occurrences.size()) {
    name.next = 0;
    ++name.cycle;
  }
  // The turn is not behind `next_`: a name is pending once at a time, so its earlier turn has
  // begun.
  const auto ahead = static_cast<std::size_t>(turn - next_);
  while (missing_.size() <= ahead) missing_.push_back(tensors_of(next_ + missing_.size()));
  --missing_[ahead];
  ++waiting_;
  return true;
}

bool Replay::ready() const noexcept { return !missing_.empty() && missing_.front() == 0; }

Replay::Turn Replay::begin() {
  const std::size_t turn = next_ % mine_.size();
  const std::size_t batch = mine_[turn];
  begun_ = sequence_of({epoch_, next_ / mine_.size(), batch}, plan_.batches.size());
  waiting_ -= tensors_of(next_);
  missing_.pop_front();
  ++next_;
  return {begun_, mix(digest_, batch), &plan_.batches[batch], keys_[turn]};
}

}  // namespace hvd::detail
