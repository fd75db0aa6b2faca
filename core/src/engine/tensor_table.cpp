#include "engine/tensor_table.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/all_ranks.hpp>

namespace hvd::detail {

TensorTable::TensorTable(int rank, int size) : rank_(rank), everybody_(all_ranks(size)) {}

/// Updates `ready_`. It is called after every change on which `turn_ready` depends.
void TensorTable::look_ahead() noexcept {
  ready_.store(replay_ && !stopped_ && turn_.sequence == 0 && replay_->ready(),
               std::memory_order_release);
}

TensorTable::Next TensorTable::add(std::span<const Tensor> tensors, std::uint64_t observed) {
  const std::lock_guard lock(mutex_);
  if (closed_) std::rethrow_exception(closed_);
  PendingTensor::Groups::value_type* group = nullptr;
  if (const Request& first = tensors.front()->submission.request; !first.group.empty()) {
    const auto [at, is_new] = groups_.try_emplace({first.process_set, first.group}, tensors.size());
    if (!is_new) {
      throw Error(Errc::duplicate_name,
                  fmt::format("group '{}': this name is still pending on this rank", first.group));
    }
    group = &*at;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Request& request = tensors[i]->submission.request;
    tensors[i]->group = group;
    if (insert(tensors[i])) continue;
    for (std::size_t j = 0; j < i; ++j) pending_.erase(tensors[j]->key);
    if (group) groups_.erase(group->first);
    throw Error(Errc::duplicate_name,
                fmt::format("{} '{}': this name is still pending on this rank",
                            to_string(request.kind), request.name));
  }
  if (observed != observed_) ++segment_;
  observed_ = observed;
  Next next;
  // The members of a group take their places in the schedule all together or not at all.
  const bool fits = tensors.size() == 1 || !replay_ ||
                    std::all_of(tensors.begin(), tensors.end(), [this](const Tensor& tensor) {
                      return replay_->holds(tensor->submission.request);
                    });
  for (const Tensor& tensor : tensors) add(next, tensor, fits);
  look_ahead();
  return next;
}

/// Returns false when the name is pending already.
bool TensorTable::insert(const Tensor& tensor) {
  tensor->key = view_of(tensor->submission.request);
  if (spare_.empty()) return pending_.try_emplace(tensor->key, tensor).second;
  spare_.key() = tensor->key;
  spare_.mapped() = tensor;
  auto made = pending_.insert(std::move(spare_));
  if (made.inserted) return true;
  spare_ = std::move(made.node);
  spare_.mapped().reset();
  return false;
}

void TensorTable::add(Next& next, const Tensor& tensor, bool fits) {
  tensor->segment = segment_;
  tensor->order = order_++;
  if (!replay_) {
    unannounced_.push_back(tensor);
    next.announce = next.announce || unannounced_.size() == 1;
    return;
  }
  if (stopped_) return;  // `resume` announces the operation
  tensor->planned = fits && replay_->submitted(tensor->submission.request, tensor->key);
  if (!tensor->planned) next.thaw = true;
  next.run = replay_->ready();
}

std::vector<Announcement> TensorTable::take_unannounced() {
  const std::lock_guard lock(mutex_);
  std::vector<Announcement> announcements;
  for (const Tensor& tensor : std::exchange(unannounced_, {})) {
    announcements.push_back({tensor->submission.request, tensor->segment});
  }
  return announcements;
}

std::shared_ptr<PendingTensor> TensorTable::find(const OperationKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = pending_.find(key);
  return at == pending_.end() || at->second->scheduled ? nullptr : at->second;
}

void TensorTable::launch(const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (tensor->stand_in) return;
  forget(*tensor);
  launched_.insert(tensor);
}

void TensorTable::remove(const PendingTensor& tensor) {
  const std::lock_guard lock(mutex_);
  forget(tensor);
}

void TensorTable::remove(std::span<const Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  for (const Tensor& tensor : tensors) {
    if (launched_.erase(tensor) == 0) forget(*tensor);
  }
}

void TensorTable::forget(const PendingTensor& tensor) {
  if (tensor.stand_in) return;
  const auto at = pending_.find(tensor.key);
  if (at == pending_.end()) return;
  if (tensor.group && --tensor.group->second == 0) groups_.erase(groups_.find(tensor.group->first));
  spare_ = pending_.extract(at);
  spare_.mapped().reset();
}

TensorTable::Next TensorTable::freeze(FrozenSchedule plan, std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  unannounced_.clear();
  replay_.emplace(std::move(plan), epoch, rank_);
  stopped_ = false;
  std::vector<PendingTensor*> waiting;
  for (const auto& [key, tensor] : pending_) {
    if (!tensor->scheduled) waiting.push_back(tensor.get());
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const auto* a, const auto* b) { return a->order < b->order; });
  std::set<OperationKey> misfits;  // groups with a member that the plan does not hold
  for (const PendingTensor* tensor : waiting) {
    const Request& request = tensor->submission.request;
    if (!request.group.empty() && !replay_->holds(request)) {
      misfits.insert({request.process_set, request.group});
    }
  }
  Next next;
  for (PendingTensor* tensor : waiting) {
    const Request& request = tensor->submission.request;
    const bool fits = misfits.count({request.process_set, request.group}) == 0;
    tensor->planned = fits && replay_->submitted(request, tensor->key);
    if (!tensor->planned) next.thaw = true;
  }
  next.run = replay_->ready();
  look_ahead();
  return next;
}

std::optional<std::uint64_t> TensorTable::held_back() const {
  const std::lock_guard lock(mutex_);
  if (!replay_ || stopped_ || turn_.sequence != 0 || !replay_->held_back()) return std::nullopt;
  return replay_->turns();
}

std::optional<Clock::time_point> TensorTable::waits_since() const {
  const std::lock_guard lock(mutex_);
  if (turn_.sequence == 0 || phase_.load(std::memory_order_relaxed) == TurnPhase::committed)
    return std::nullopt;
  return turn_.since;
}

std::optional<SchedulePosition> TensorTable::take_turn(LocalBatch& batch, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (!turn_ready()) return std::nullopt;
  const Replay::Turn next = replay_->begin();
  const PlannedBatch& planned = *next.batch;
  batch.kind = planned.requests.front().kind;
  batch.process_set = planned.process_set;
  batch.rows = planned.rows;
  batch.contributors = 0;
  batch.sequence = next.sequence;
  batch.digest = next.digest;
  batch.members = planned.members.empty() ? everybody_ : planned.members;
  batch.tensors.clear();
  turn_.tensors.clear();
  for (const OperationKeyView& key : next.keys) {
    const Tensor& tensor = pending_.find(key)->second;
    tensor->scheduled = true;
    batch.tensors.push_back(tensor);
    turn_.tensors.push_back(tensor.get());
  }
  turn_.sequence = next.sequence;
  turn_.since = now;
  turn_.members = batch.members;
  phase_.store(TurnPhase::begun, std::memory_order_relaxed);
  look_ahead();
  return position_of(next.sequence, replay_->plan().batches.size());
}

bool TensorTable::begin_announcing() noexcept {
  TurnPhase begun = TurnPhase::begun;
  return phase_.compare_exchange_strong(begun, TurnPhase::announcing);
}

void TensorTable::end_announcing() noexcept {
  phase_.store(TurnPhase::announced);
  phase_.notify_one();
}

/// The thread that took the turn may be about to announce it. When this returns, that thread has
/// either announced the turn or will see that the turn is withdrawn.
void TensorTable::withdraw_turn() noexcept {
  TurnPhase begun = TurnPhase::begun;
  if (phase_.compare_exchange_strong(begun, TurnPhase::withdrawn)) return;
  phase_.wait(TurnPhase::announcing);
}

void TensorTable::end_turn(std::span<const Tensor> done) {
  const std::lock_guard lock(mutex_);
  turn_.sequence = 0;
  for (const Tensor& tensor : done) forget(*tensor);
  look_ahead();
}

SequenceNumber TensorTable::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  look_ahead();
  return replay_ ? replay_->begun() : 0;
}

void TensorTable::resume(const std::vector<SequenceNumber>& begun) {
  const std::lock_guard lock(mutex_);
  // A turn of an earlier schedule may still run. All its members have begun it; `begun` has
  // sequence numbers of the current schedule only.
  const bool of_this =
      turn_.sequence != 0 && replay_ && position_of(turn_.sequence, 1).epoch == replay_->epoch();
  if (of_this && !std::all_of(turn_.members.begin(), turn_.members.end(), [&](int member) {
        return begun.at(static_cast<std::size_t>(member)) >= turn_.sequence;
      })) {
    withdraw_turn();
    for (PendingTensor* const tensor : turn_.tensors) tensor->scheduled = false;
    turn_.tensors.clear();
    turn_.members.clear();
  }
  replay_.reset();
  look_ahead();
  stopped_ = false;
  announce_again();
}

void TensorTable::announce_again() {
  unannounced_.clear();
  for (const auto& [key, tensor] : pending_) {
    tensor->planned = false;
    if (!tensor->scheduled) unannounced_.push_back(tensor);
  }
  std::sort(unannounced_.begin(), unannounced_.end(),
            [](const Tensor& a, const Tensor& b) { return a->order < b->order; });
}

void TensorTable::close(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = std::move(error);
}

void TensorTable::check_open() const {
  const std::lock_guard lock(mutex_);
  if (closed_) std::rethrow_exception(closed_);
}

std::vector<std::shared_ptr<PendingTensor>> TensorTable::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<Tensor> all;
  for (auto& [key, tensor] : std::exchange(pending_, {})) all.push_back(std::move(tensor));
  all.insert(all.end(), launched_.begin(), launched_.end());
  launched_.clear();
  groups_.clear();
  unannounced_.clear();
  replay_.reset();
  turn_.sequence = 0;
  look_ahead();
  return all;
}

std::vector<const PendingTensor*> TensorTable::unfinished() const {
  std::vector<const PendingTensor*> all;
  for (const auto& [key, tensor] : pending_) all.push_back(tensor.get());
  for (const Tensor& tensor : launched_) all.push_back(tensor.get());
  return all;
}

std::optional<TensorTable::Oldest> TensorTable::oldest() const {
  const std::lock_guard lock(mutex_);
  const auto all = unfinished();
  const auto found = std::min_element(
      all.begin(), all.end(), [](const auto* a, const auto* b) { return a->since < b->since; });
  if (found == all.end()) return std::nullopt;
  const Request& request = (*found)->submission.request;
  return Oldest{request.name, request.kind, (*found)->scheduled, (*found)->since,
                request.process_set};
}

TensorTable::Waiting TensorTable::waiting(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<const PendingTensor*> all = unfinished();
  const auto shown = static_cast<std::ptrdiff_t>(std::min(most, all.size()));
  std::partial_sort(all.begin(), all.begin() + shown, all.end(),
                    [](const auto* a, const auto* b) { return a->order < b->order; });
  Waiting waiting{.count = all.size(), .oldest = {}};
  for (const PendingTensor* tensor : std::span(all).first(static_cast<std::size_t>(shown))) {
    const Request& request = tensor->submission.request;
    waiting.oldest.push_back(
        {request.name, request.kind, tensor->scheduled, tensor->since, request.process_set});
  }
  return waiting;
}

void TensorTable::mark_scheduled(PendingTensor& tensor) {
  const std::lock_guard lock(mutex_);
  tensor.scheduled = true;
}

}  // namespace hvd::detail
