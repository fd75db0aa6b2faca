#include "backend_work.hpp"

#include <algorithm>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <hvd/core/error.hpp>

#include "c10d_error.hpp"
#include "collectives/device_event.hpp"

namespace hvd::python {

void FutureCompleter::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_one();
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else if (thread.joinable()) {
    thread.join();
  }
  if (of_callbacks_) of_callbacks_->stop();
}

void FutureCompleter::wait(const std::vector<Work>& works, const at::Tensor& tensor) const {
  detail::StreamWaits waits(stream_ordered_);
  with_c10d_errors([&] {
    for (const Work& work : works) waits.wait(work, tensor);
  });
}

c10::intrusive_ptr<c10::ivalue::Future> FutureCompleter::future_of(
    const std::vector<Work>& works, const std::vector<at::Tensor>& results,
    const at::Tensor& tensor) {
  std::unique_lock lock(mutex_);
  if (thread_.get_id() == std::this_thread::get_id()) {
    if (!of_callbacks_) of_callbacks_ = std::make_shared<FutureCompleter>(stream_ordered_);
    lock.unlock();
    return of_callbacks_->future_of(works, results, tensor);
  }
  std::vector<c10::Device> devices;
  if (tensor.defined() && !tensor.is_cpu()) devices.push_back(tensor.device());
  Entry entry{works, results, tensor,
              c10::make_intrusive<c10::ivalue::Future>(
                  c10::ListType::create(c10::TensorType::get()), std::move(devices))};
  auto future = entry.future;
  if (ended_ ||
      std::all_of(works.begin(), works.end(), [](const Work& work) { return work.done(); })) {
    lock.unlock();
    complete(entry);
    return future;
  }
  entries_.push_back(std::move(entry));
  if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->run(); });
  changed_.notify_one();
  return future;
}

void FutureCompleter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !entries_.empty(); });
    if (entries_.empty()) return;
    {
      const Entry entry = std::move(entries_.front());
      entries_.pop_front();
      lock.unlock();
      complete(entry);
    }
    lock.lock();
  }
}

void FutureCompleter::complete(const Entry& entry) const {
  // A stream on which a program waits for a future waits for the streams that are current where the
  // future completes. So a stream of torch's pool is current here, and waits for the operations.
  c10::OptionalStreamGuard guard;
  for (const c10::Device& device : entry.future->devices()) {
    guard.reset_stream(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
  }
  try {
    wait(entry.works, entry.tensor);
  } catch (...) {
    entry.future->setError(std::current_exception());
    return;
  }
  entry.future->markCompleted(c10::IValue(entry.results));
}

const char* profiling_title(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED:
      return "hvd:all_reduce";
    case c10d::OpType::_ALLREDUCE_SPARSE:
      return "hvd:sparse_all_reduce";
    case c10d::OpType::REDUCE:
      return "hvd:reduce";
    case c10d::OpType::BROADCAST:
      return "hvd:broadcast";
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::ALLGATHER_COALESCED:
      return "hvd:all_gather";
    case c10d::OpType::_ALLGATHER_BASE:
      return "hvd:all_gather_into_tensor";
    case c10d::OpType::REDUCE_SCATTER:
      return "hvd:reduce_scatter";
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return "hvd:reduce_scatter_tensor";
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE:
      return "hvd:all_to_all";
    case c10d::OpType::GATHER:
      return "hvd:gather";
    case c10d::OpType::SCATTER:
      return "hvd:scatter";
    case c10d::OpType::SEND:
      return "hvd:send";
    case c10d::OpType::RECV:
      return "hvd:recv";
    case c10d::OpType::RECVANYSOURCE:
      return "hvd:recvAnySource";
    case c10d::OpType::BARRIER:
      return "hvd:barrier";
    default:
      return "hvd:coalesced";
  }
}

BackendWork::BackendWork(int rank, c10d::OpType type, std::chrono::milliseconds timeout,
                         std::vector<at::Tensor> results, const std::vector<at::Tensor>& inputs,
                         std::shared_ptr<FutureCompleter> completer)
    : c10d::Work(rank, type, profiling_title(type), inputs),
      timeout_(timeout),
      results_(std::move(results)),
      tensor_(!inputs.empty()     ? inputs.front()
              : !results_.empty() ? results_.front()
                                  : at::Tensor()),
      completer_(std::move(completer)) {}

void BackendWork::end_profile() {
  const std::lock_guard lock(mutex_);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

bool BackendWork::isCompleted() {
  const bool ended =
      std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work.done(); });
  if (ended) end_profile();
  return ended;
}

bool BackendWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work.done() && !work.error(); });
}

std::exception_ptr BackendWork::exception() const {
  for (const hvd::Work& work : works_) {
    const std::exception_ptr error = work.error();
    if (!error) continue;
    try {
      with_c10d_errors([&] { std::rethrow_exception(error); });
    } catch (...) {
      return std::current_exception();
    }
  }
  return nullptr;
}

bool BackendWork::wait(std::chrono::milliseconds timeout) {
  if (timeout <= kNoTimeout) timeout = timeout_;
  if (timeout <= kNoTimeout) {
    completer_->wait(works_, tensor_);
  } else {
    const Deadline deadline = Clock::now() + timeout;
    with_c10d_errors([&] {
      for (const hvd::Work& work : works_) {
        if (work.wait_until(deadline)) continue;
        throw Error(Errc::timeout, c10d::opTypeToString(retrieveOpType()) + " did not end within " +
                                       std::to_string(timeout.count()) + " ms");
      }
    });
  }
  end_profile();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> BackendWork::getFuture() {
  const std::lock_guard lock(mutex_);
  if (!future_) future_ = completer_->future_of(works_, results_, tensor_);
  return future_;
}

}  // namespace hvd::python
