#include "engine/collective_runner.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/process_set.hpp>

namespace hvd::detail {
namespace {

const std::byte* bytes(const void* pointer) { return static_cast<const std::byte*>(pointer); }
std::byte* bytes(void* pointer) { return static_cast<std::byte*>(pointer); }

/// Returns the number of elements in one row, as backends count them: a complex number is two
/// reals.
std::int64_t row_elements(const Request& request) {
  const Shape row(request.shape.begin() + 1, request.shape.end());
  return element_count(row) * reals_per_element(request.dtype);
}

/// Returns the rows that a rank gets in a reducescatter: the first ranks get the remainder, one row
/// each.
std::int64_t scattered_rows(std::int64_t rows, std::int64_t ranks, std::int64_t rank) {
  return rows / ranks + (rank < rows % ranks ? 1 : 0);
}

/// Returns the first line of an exception's message, since LibTorch's messages continue with the
/// stack.
std::string first_line(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    return std::string(text.substr(0, text.find('\n')));
  } catch (...) {
    return "something else than a std::exception was thrown";
  }
}

const Request& first_of(const LocalBatch& batch) {
  return batch.tensors.front()->submission.request;
}

bool waits_for_data(const LocalBatch& batch) {
  return std::any_of(batch.tensors.begin(), batch.tensors.end(),
                     [](const auto& tensor) { return tensor->submission.ready != nullptr; });
}

}  // namespace

CollectiveRunner::CollectiveRunner(std::vector<std::unique_ptr<Backend>> backends, int rank,
                                   int size, Observer& observer)
    : backends_(std::move(backends)), rank_(rank), observer_(observer) {
  Group& everybody = groups_[0];
  everybody.ranks = all_ranks(size);
  everybody.place = rank;
}

std::size_t CollectiveRunner::index_for(const Request& request) const noexcept {
  std::size_t index = 0;
  while (index < backends_.size() &&
         !backends_[index]->supports(request.kind, request.device, real_of(request.dtype),
                                     request.op)) {
    ++index;
  }
  return index;
}

bool CollectiveRunner::supports(const Request& request) const noexcept {
  switch (request.kind) {
    case OpKind::join:
    case OpKind::add_process_set:
    case OpKind::remove_process_set:
      return true;
    default:
      return index_for(request) < backends_.size();
  }
}

Backend* CollectiveRunner::backend_for(const Request& request, const Group& group) const noexcept {
  const std::size_t index = index_for(request);
  if (index == backends_.size()) return nullptr;
  return (group.subsets.empty() ? backends_ : group.subsets)[index].get();
}

void CollectiveRunner::abort() noexcept {
  for (const auto& backend : backends_) backend->abort();
}

/// Makes the backends of a process set or of a pair set, on its members only.
void CollectiveRunner::add_set(std::int32_t id, const std::vector<int>& members,
                               Deadline deadline) {
  Group group{members, 0, {}};
  const auto place = std::lower_bound(group.ranks.begin(), group.ranks.end(), rank_);
  if (place == group.ranks.end() || *place != rank_) return;
  group.place = static_cast<int>(place - group.ranks.begin());
  for (const auto& backend : backends_) {
    group.subsets.push_back(backend->subset(group.ranks, deadline));
  }
  groups_.emplace(id, std::move(group));
}

/// Returns the group of the batch's process set. A pair set gets its backends at its first
/// operation, in which both of its ranks take part.
const CollectiveRunner::Group& CollectiveRunner::group_of(const LocalBatch& batch,
                                                          Deadline deadline) {
  const auto at = groups_.find(batch.process_set);
  if (at != groups_.end()) return at->second;
  const auto everybody = static_cast<int>(groups_.at(0).ranks.size());
  if (const auto pair = pair_members(batch.process_set, everybody)) {
    add_set(batch.process_set, *pair, deadline);
  }
  return groups_.at(batch.process_set);
}

CollectiveRunner::Ran CollectiveRunner::run(const LocalBatch& batch, Clock::time_point now,
                                            Deadline deadline) {
  if (batch.kind == OpKind::add_process_set) {
    add_set(batch.process_set, batch.members, deadline);
    return {nullptr, Clock::now(), {}};
  }
  if (batch.kind == OpKind::remove_process_set) {
    groups_.erase(batch.process_set);
    return {nullptr, now, {}};
  }
  const Group& group = group_of(batch, deadline);
  Backend* const chosen =
      announced_to_ != nullptr ? announced_to_ : backend_for(first_of(batch), group);
  if (chosen == nullptr) {
    throw Error(Errc::internal, fmt::format("no backend runs '{}'", first_of(batch).name));
  }
  Backend& backend = *chosen;
  observer_.dequeued(batch, now);
  Clock::time_point began = now;
  allocate_results(batch, group);  // before the wait for data, which thus covers this memory too
  if (announced_to_ == nullptr && waits_for_data(batch)) {
    wait_for_data(backend, batch, now, deadline);
    began = Clock::now();
  }
  count_up(observer_.counters.collectives_started);
  if (!runs_alone(batch)) backend.allow_async();
  call(backend, batch, group, deadline);
  if (auto async = backend.take_async()) {
    count(batch);
    return {std::move(async), began, backend.name()};
  }
  const auto ended = Clock::now();
  over(batch, backend.name(), began, ended);
  count(batch);
  return {nullptr, ended, {}};
}

/// Tells whether a batch begins only when all batches before it are complete, and is complete when
/// its call returns. Making and removing a process set require this, and a barrier promises it.
bool CollectiveRunner::runs_alone(const LocalBatch& batch) noexcept {
  return batch.kind == OpKind::add_process_set || batch.kind == OpKind::remove_process_set ||
         batch.kind == OpKind::barrier;
}

/// The work that two backends queue on a device has no common order there. A backend that allocates
/// device memory may also wait without a deadline for work that is queued, and so may one that
/// starts.
bool CollectiveRunner::must_complete_before(const LocalBatch& batch,
                                            std::string_view last) const noexcept {
  if (runs_alone(batch)) return true;
  const Request& request = first_of(batch);
  if (request.device.kind == Device::Kind::cpu) return false;
  const auto group = groups_.find(batch.process_set);
  if (group == groups_.end()) return true;  // the pair set gets its backends now
  const Backend* const backend = backend_for(request, group->second);
  return backend != nullptr && (backend->name() != last || backend->starts());
}

/// The device runs one collective after the other, so this one began when the previous one was
/// complete.
void CollectiveRunner::completed(const LocalBatch& batch, const Ran& ran) {
  const auto began = std::max(ran.time, completed_);
  completed_ = Clock::now();
  over(batch, ran.backend, began, completed_);
}

void CollectiveRunner::over(const LocalBatch& batch, std::string_view backend,
                            Clock::time_point began, Clock::time_point ended) {
  observer_.meter.communication(began, ended);
  observer_.phase(batch, to_string(batch.kind), began, ended, backend);
}

void CollectiveRunner::wait_for_data(Backend& backend, const LocalBatch& batch,
                                     Clock::time_point began, Deadline deadline) {
  const DeviceEvent* last = nullptr;  // neighbours often share an event
  for (const auto& tensor : batch.tensors) {
    DeviceEvent* const ready = tensor->submission.ready.get();
    if (ready != nullptr && ready != last) backend.after(*ready, deadline);
    last = ready;
  }
  const auto ended = Clock::now();
  observer_.meter.waited_for_data(ended - began);
  observer_.phase(batch, timeline_phase::kWaitForData, began, ended);
}

void CollectiveRunner::call(Backend& backend, const LocalBatch& batch, const Group& group,
                            Deadline deadline) {
  switch (batch.kind) {
    case OpKind::allreduce:
      return allreduce(backend, batch, deadline);
    case OpKind::allgather:
      return allgather(backend, batch, deadline);
    case OpKind::broadcast:
      return broadcast(backend, batch, group, deadline);
    case OpKind::reducescatter:
      return reducescatter(backend, batch, group, deadline);
    case OpKind::alltoall:
      return alltoall(backend, batch, deadline);
    default:
      return backend.barrier(deadline);
  }
}

void CollectiveRunner::count(const LocalBatch& batch) {
  Counters& counters = observer_.counters;
  std::uint64_t bytes = 0;
  for (const auto& tensor : batch.tensors) bytes += input_bytes(tensor->submission.request);
  count_up(counters.collectives);
  count_up(counters.bytes, bytes);
  if (batch.tensors.size() == 1) return;
  count_up(counters.fused_tensors, batch.tensors.size());
  count_up(counters.fused_bytes, bytes);
}

namespace {

/// Reports the copies of a fused call to the meter and the timeline.
class Copies final : public CallObserver {
 public:
  Copies(Observer& observer, const LocalBatch& batch) : observer_(observer), batch_(batch) {}
  void copied_in(Clock::time_point begin, Clock::time_point end) override {
    tell(timeline_phase::kMemcpyIn, begin, end);
  }
  void copied_out(Clock::time_point begin, Clock::time_point end) override {
    tell(timeline_phase::kMemcpyOut, begin, end);
  }

 private:
  void tell(std::string_view phase, Clock::time_point begin, Clock::time_point end) {
    observer_.meter.packed(end - begin);
    observer_.phase(batch_, phase, begin, end);
  }

  Observer& observer_;
  const LocalBatch& batch_;
};

}  // namespace

/// Returns the slices of the batch's tensors. `announce` has already made those of an announced
/// batch.
std::span<const TensorSlice> CollectiveRunner::slices(const LocalBatch& batch) {
  if (announced_to_ != nullptr) return slices_;
  slices_.clear();
  for (const auto& tensor : batch.tensors) {
    const Submission& submission = tensor->submission;
    const Request& request = submission.request;
    slices_.push_back({bytes(submission.input), bytes(submission.output),
                       element_count(request.shape) * reals_per_element(request.dtype)});
  }
  return slices_;
}

AllreduceCall CollectiveRunner::allreduce_call(const LocalBatch& batch, CallObserver* observer) {
  const Request& first = first_of(batch);
  return {slices(batch),      first.device,   real_of(first.dtype),
          first.op,           first.prescale, first.postscale,
          batch.contributors, observer,       first.f32_memory};
}

void CollectiveRunner::announce(const LocalBatch& batch) {
  if (batch.kind != OpKind::allreduce || waits_for_data(batch)) return;
  const auto group = groups_.find(batch.process_set);
  if (group == groups_.end()) return;
  Backend* const backend = backend_for(first_of(batch), group->second);
  if (backend == nullptr) return;
  backend->announce(allreduce_call(batch, nullptr), batch.sequence);
  announced_to_ = backend;
}

void CollectiveRunner::retract() noexcept {
  if (Backend* const backend = std::exchange(announced_to_, nullptr)) backend->retract();
}

void CollectiveRunner::abandon() noexcept {
  if (Backend* const backend = std::exchange(announced_to_, nullptr)) backend->abandon();
}

/// Returns the rows of a tensor's result on this rank.
std::int64_t CollectiveRunner::result_rows(const LocalBatch& batch, std::size_t tensor,
                                           const Group& group) {
  if (batch.kind != OpKind::reducescatter) {
    const std::vector<std::int64_t>& rows = batch.rows[tensor];
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  return scattered_rows(batch.tensors[tensor]->submission.request.shape.front(),
                        std::ssize(group.ranks), group.place);
}

void CollectiveRunner::allocate_results(const LocalBatch& batch, const Group& group) const {
  if (!needs_rows(batch.kind) && batch.kind != OpKind::reducescatter) return;
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    PendingTensor& tensor = *batch.tensors[i];
    Shape shape = tensor.submission.request.shape;
    shape.front() = result_rows(batch, i, group);
    tensor.submission.output = allocate(tensor, shape);
  }
}

/// Returns memory for a result. When the user's allocation fails this rank still takes part, with
/// host memory of its own, so that the other ranks do not wait for it. A device cannot write to
/// host memory, so for a device the failure is thrown.
void* CollectiveRunner::allocate(PendingTensor& tensor, const Shape& shape) const {
  try {
    return tensor.submission.allocate(shape);
  } catch (...) {
    tensor.error = std::current_exception();
  }
  const Request& request = tensor.submission.request;
  const std::int64_t count = element_count(shape);
  if (request.device.kind != Device::Kind::cpu && count > 0) {
    Fault fault;
    fault.rank = rank_;
    fault.cause = fmt::format("no memory for the result of {} '{}': {}", to_string(request.kind),
                              request.name, first_line(tensor.error));
    throw Error(Errc::resource, std::move(fault));
  }
  tensor.substitute.resize(static_cast<std::size_t>(count) * size_of(request.dtype));
  return tensor.substitute.data();
}

void CollectiveRunner::allreduce(Backend& backend, const LocalBatch& batch, Deadline deadline) {
  Copies copies(observer_, batch);
  const AllreduceCall call = allreduce_call(batch, &copies);
  announced_to_ = nullptr;
  backend.allreduce(call, deadline);
}

void CollectiveRunner::broadcast(Backend& backend, const LocalBatch& batch, const Group& group,
                                 Deadline deadline) {
  const Request& first = first_of(batch);
  const auto root = std::lower_bound(group.ranks.begin(), group.ranks.end(), first.root);
  backend.broadcast({slices(batch), first.device, real_of(first.dtype),
                     static_cast<int>(root - group.ranks.begin())},
                    deadline);
}

void CollectiveRunner::allgather(Backend& backend, const LocalBatch& batch, Deadline deadline) {
  const Request& first = first_of(batch);
  std::vector<GatherSlice> tensors;
  std::vector<std::vector<std::int64_t>> counts(batch.tensors.size());
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const Submission& submission = batch.tensors[i]->submission;
    const std::int64_t row = row_elements(submission.request);
    for (const std::int64_t rows : batch.rows[i]) counts[i].push_back(rows * row);
    tensors.push_back({bytes(submission.input), bytes(submission.output), counts[i]});
  }
  backend.allgather({tensors, first.device, real_of(first.dtype)}, deadline);
}

void CollectiveRunner::reducescatter(Backend& backend, const LocalBatch& batch, const Group& group,
                                     Deadline deadline) {
  const Request& first = first_of(batch);
  const std::int64_t ranks = std::ssize(group.ranks);
  std::vector<ScatterSlice> tensors;
  std::vector<std::vector<std::int64_t>> counts(batch.tensors.size());
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const Submission& submission = batch.tensors[i]->submission;
    const Shape& shape = submission.request.shape;
    const std::int64_t row = row_elements(submission.request);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      counts[i].push_back(scattered_rows(shape.front(), ranks, rank) * row);
    }
    tensors.push_back({bytes(submission.input), bytes(submission.output), counts[i]});
  }
  backend.reducescatter(
      {tensors, first.device, real_of(first.dtype), first.op, first.prescale, first.postscale},
      deadline);
}

void CollectiveRunner::alltoall(Backend& backend, const LocalBatch& batch, Deadline deadline) {
  PendingTensor& tensor = *batch.tensors.front();
  const Request& request = tensor.submission.request;
  const std::vector<std::int64_t>& received = batch.rows.front();
  const std::int64_t row = row_elements(request);
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> receive_counts;
  for (const std::int64_t rows : request.splits) send_counts.push_back(rows * row);
  for (const std::int64_t rows : received) receive_counts.push_back(rows * row);
  backend.alltoall({bytes(tensor.submission.input), bytes(tensor.submission.output), send_counts,
                    receive_counts, request.device, real_of(request.dtype)},
                   deadline);
  if (!tensor.error && tensor.submission.report) tensor.submission.report(received);
}

}  // namespace hvd::detail
