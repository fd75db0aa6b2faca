#include "event_queue.hpp"

#include <algorithm>
#include <utility>

namespace hvd::sim {

EventQueue::EventQueue(int ranks)
    : stopped_until_(static_cast<std::size_t>(ranks)), dead_(static_cast<std::size_t>(ranks)) {
  heap_.reserve(256);
}

void EventQueue::push(Nanos time, int rank, Action action) {
  heap_.push_back({std::max(time, now_), order_++, rank, std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

bool EventQueue::step() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.time;
    if (event.rank >= 0) {
      const auto rank = static_cast<std::size_t>(event.rank);
      if (dead_[rank]) continue;
      if (stopped_until_[rank] > now_) {
        // Events are popped and pushed in order, so waiting events keep their order.
        push(stopped_until_[rank], event.rank, std::move(event.action));
        continue;
      }
    }
    ++events_;
    event.action();
    return true;
  }
  return false;
}

}  // namespace hvd::sim
