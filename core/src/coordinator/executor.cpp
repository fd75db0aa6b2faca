#include "coordinator/executor.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace hvd {
namespace {

const std::byte* bytes(const void* pointer) { return static_cast<const std::byte*>(pointer); }
std::byte* bytes(void* pointer) { return static_cast<std::byte*>(pointer); }

/// Elements of one row of an allgather.
std::int64_t row_elements(const Shape& shape) {
  return element_count(Shape(shape.begin() + 1, shape.end()));
}

}  // namespace

Executor::Executor(std::vector<std::unique_ptr<Backend>> backends, Clock::duration timeout,
                   Counters& counters, Callbacks callbacks)
    : backends_(std::move(backends)),
      timeout_(timeout),
      counters_(counters),
      callbacks_(std::move(callbacks)),
      thread_([this] { thread_main(); }) {
  pthread_setname_np(thread_.native_handle(), "hvd-executor");
}

Executor::~Executor() {
  stop();
  join();
}

Backend* Executor::backend_for(const Request& request) const noexcept {
  for (const auto& backend : backends_) {
    if (backend->supports(request.kind, request.device, request.dtype, request.op)) {
      return backend.get();
    }
  }
  return nullptr;
}

bool Executor::supports(const Request& request) const noexcept {
  return backend_for(request) != nullptr;
}

void Executor::run(TensorBatch batch) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(batch));
  changed_.notify_one();
}

void Executor::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::running) state_ = State::draining;
  changed_.notify_one();
}

void Executor::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::stopped;
    changed_.notify_one();
  }
  for (const auto& backend : backends_) backend->abort();
}

void Executor::join() {
  if (thread_.joinable()) thread_.join();
}

bool Executor::next(TensorBatch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::running || !queue_.empty(); });
  if (state_ == State::stopped || queue_.empty()) return false;
  batch = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Executor::thread_main() {
  for (TensorBatch batch; next(batch);) {
    try {
      execute(batch);
    } catch (const Error& error) {
      callbacks_.failed(error);
      break;
    } catch (const std::bad_alloc&) {
      callbacks_.failed(Error(Errc::resource, "out of memory"));
      break;
    } catch (const std::exception& error) {
      callbacks_.failed(Error(Errc::internal, error.what()));
      break;
    }
    for (const auto& tensor : batch.tensors) finish(*tensor);
    batch = {};  // what the tensors keep alive goes with them, not with the next batch
    callbacks_.batch_done();
  }
  std::unique_lock lock(mutex_);
  if (state_ == State::draining && queue_.empty()) return;
  changed_.wait(lock, [this] { return state_ == State::stopped; });
  queue_.clear();
  lock.unlock();
  callbacks_.stopped();
}

void Executor::finish(PendingTensor& tensor) const {
  try {
    if (!tensor.error && tensor.submission.finish) tensor.submission.finish();
  } catch (...) {
    tensor.error = std::current_exception();
  }
  callbacks_.tensor_done(tensor, tensor.error);
}

void Executor::execute(const TensorBatch& batch) {
  const Request& first = batch.tensors.front()->submission.request;
  Backend* const backend = backend_for(first);
  if (!backend) throw Error(Errc::internal, fmt::format("no backend runs '{}'", first.name));
  const Deadline deadline = Clock::now() + timeout_;
  for (const auto& tensor : batch.tensors) {
    if (tensor->submission.ready) tensor->submission.ready->wait(deadline);
  }
  ++counters_.collectives_started;
  switch (first.kind) {
    case OpKind::allreduce:
      allreduce(*backend, batch, deadline);
      break;
    case OpKind::allgather:
      allgather(*backend, batch, deadline);
      break;
    case OpKind::broadcast:
      broadcast(*backend, batch, deadline);
      break;
    case OpKind::barrier:
      backend->barrier(deadline);
      break;
  }
  ++counters_.collectives;
  if (batch.tensors.size() > 1) counters_.fused_tensors += batch.tensors.size();
  for (const auto& tensor : batch.tensors) {
    const Request& request = tensor->submission.request;
    counters_.bytes +=
        static_cast<std::uint64_t>(element_count(request.shape)) * size_of(request.dtype);
  }
}

namespace {

std::vector<TensorSlice> slices(const TensorBatch& batch) {
  std::vector<TensorSlice> all;
  all.reserve(batch.tensors.size());
  for (const auto& tensor : batch.tensors) {
    const Submission& submission = tensor->submission;
    all.push_back({bytes(submission.input), bytes(submission.output),
                   element_count(submission.request.shape)});
  }
  return all;
}

}  // namespace

void Executor::allreduce(Backend& backend, const TensorBatch& batch, Deadline deadline) {
  const Request& first = batch.tensors.front()->submission.request;
  const std::vector<TensorSlice> tensors = slices(batch);
  backend.allreduce({tensors, first.device, first.dtype, first.op, first.prescale, first.postscale},
                    deadline);
}

void Executor::broadcast(Backend& backend, const TensorBatch& batch, Deadline deadline) {
  const Request& first = batch.tensors.front()->submission.request;
  const std::vector<TensorSlice> tensors = slices(batch);
  backend.broadcast({tensors, first.device, first.dtype, first.root}, deadline);
}

void Executor::allgather(Backend& backend, const TensorBatch& batch, Deadline deadline) {
  const Request& first = batch.tensors.front()->submission.request;
  std::vector<GatherSlice> tensors;
  std::vector<std::vector<std::int64_t>> counts(batch.tensors.size());
  // Where the user gave no memory this rank still takes part, so that the others do not wait.
  std::vector<std::vector<std::byte>> substitutes;
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const Submission& submission = batch.tensors[i]->submission;
    Shape shape = submission.request.shape;
    const std::int64_t row = row_elements(shape);
    shape.front() = 0;
    for (const std::int64_t rows : batch.first_dimensions[i]) {
      shape.front() += rows;
      counts[i].push_back(rows * row);
    }
    void* output = nullptr;
    try {
      output = submission.allocate(shape);
    } catch (...) {
      batch.tensors[i]->error = std::current_exception();
      substitutes.emplace_back(static_cast<std::size_t>(element_count(shape)) *
                               size_of(first.dtype));
      output = substitutes.back().data();
    }
    tensors.push_back({bytes(submission.input), bytes(output), counts[i]});
  }
  backend.allgather({tensors, first.device, first.dtype}, deadline);
}

}  // namespace hvd
