#include "any_source.hpp"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "backend_work.hpp"
#include "c10d_error.hpp"

namespace hvd::python {
namespace {

using std::chrono::milliseconds;

std::string asked_key(int rank) { return fmt::format("any_source/asked/{}", rank); }

std::string announcement_key(int to, int tag, std::int64_t index) {
  return fmt::format("any_source/{}/{}/{}", to, tag, index);
}

bool wait_for(c10d::Store& store, const std::string& key, milliseconds timeout) {
  if (store.check({key})) return true;
  if (timeout <= milliseconds{0}) return false;
  try {
    store.wait({key}, timeout);
    return true;
  } catch (const c10::Error&) {
    return store.check({key});  // throws where the store is gone
  }
}

}  // namespace

AnySource::AnySource(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

void AnySource::stop() noexcept {
  if (!watcher_.joinable()) return;
  try {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    sender_store_->set(asked_key(rank_), "");  // wakes the watcher
  } catch (const std::exception&) {            // the watcher notices too that the store is gone
  }
  watcher_.join();
}

void AnySource::announce(const Sent& sent) {
  const std::int64_t index =
      sender_store_->add(fmt::format("any_source/count/{}/{}", sent.to, sent.tag), 1);
  sender_store_->set(announcement_key(sent.to, sent.tag, index),
                     fmt::format("{} {}", rank_, sent.number));
}

void AnySource::sends(int to, int tag, std::uint64_t number, const hvd::Work& work) {
  const std::lock_guard lock(mutex_);
  const Sent sent{to, tag, number, work};
  if (asked_) {
    announce(sent);
    return;
  }
  std::erase_if(sent_, [](const Sent& old) { return old.work.done(); });
  sent_.push_back(sent);
  if (sender_store_) return;
  sender_store_ = store_->clone();  // the threads of this process may wait on `store_`
  watcher_ = std::thread([this] { watch(); });
}

void AnySource::watch() {
  try {
    const c10::intrusive_ptr<c10d::Store> own = store_->clone();
    while (!wait_for(*own, asked_key(rank_), std::chrono::seconds{5})) {
    }
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    for (const Sent& sent : sent_) {
      if (!sent.work.done()) announce(sent);
    }
    sent_.clear();
    asked_ = true;
  } catch (const std::exception&) {  // without a store nobody can ask
  }
}

AnySource::Message AnySource::next(int tag, milliseconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  std::unique_lock lock(receivers_mutex_);
  Receiver& receiver = receivers_[tag];
  lock.unlock();
  const std::unique_lock turn(receiver.turn, deadline);
  if (!turn) return {};
  lock.lock();
  if (idle_stores_.empty()) idle_stores_.push_back(store_->clone());
  const c10::intrusive_ptr<c10d::Store> store = idle_stores_.back();
  idle_stores_.pop_back();
  if (!std::exchange(asks_, true)) {
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) store->set(asked_key(other), "");
    }
  }
  lock.unlock();
  const Message message = read(receiver, tag, *store, deadline);
  lock.lock();
  idle_stores_.push_back(store);
  return message;
}

/// Each announcement has one reader, which deletes it.
AnySource::Message AnySource::read(Receiver& receiver, int tag, c10d::Store& store,
                                   Deadline deadline) const {
  const std::string key = announcement_key(rank_, tag, receiver.read + 1);
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  if (!wait_for(store, key, left)) return {};
  ++receiver.read;
  const std::string text = store.get_to_str(key);
  store.deleteKey(key);
  return {std::stoi(text), std::stoull(text.substr(text.find(' ')))};
}

AnySourceWork::AnySourceWork(int rank, milliseconds timeout, std::vector<at::Tensor> results,
                             Start start)
    : c10d::Work(rank, c10d::OpType::RECVANYSOURCE, profiling_title(c10d::OpType::RECVANYSOURCE),
                 results),
      timeout_(timeout),
      results_(std::move(results)),
      start_(std::move(start)) {}

bool AnySourceWork::start(milliseconds timeout) {
  if (!started_.work) started_ = start_(timeout);
  return started_.work != nullptr;
}

bool AnySourceWork::isCompleted() { return start(milliseconds{0}) && started_.work->isCompleted(); }

bool AnySourceWork::wait(milliseconds timeout) {
  if (timeout <= kNoTimeout) timeout = timeout_;
  if (!start(timeout)) {
    fail(fmt::format("no rank has sent a message within {} ms", timeout.count()));
  }
  const bool received = started_.work->wait(timeout);
  const std::lock_guard lock(mutex_);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  return received;
}

}  // namespace hvd::python
