#include "machine.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace hvd::weak {
namespace {

/// A loop that waits may read an old message for ever. A real store becomes visible some time, and
/// a repetition adds nothing new after the four reads of one round of ShmWait.
constexpr std::uint8_t kStale = 4;
constexpr std::uint64_t kCell = 4;  // bytes that are watched together

bool acquires(int order) {
  return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}
bool releases(int order) {
  return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

}  // namespace

void Machine::reset() {
  threads_.fill({});
  for (std::size_t i = 0; i < kThreads; ++i) threads_[i].now.clock[i] = 1;
  locations_.clear();
  index_.clear();
  cells_.clear();
  mutexes_.clear();
  sc_ = {};
}

std::size_t Machine::find(Place place) {
  const auto [at, is_new] = index_.try_emplace(place.at, locations_.size());
  if (!is_new) return at->second;
  if (locations_.size() == kLocations) throw std::length_error("kLocations is too small");
  Location& made = locations_.emplace_back();
  made.at = place.at;
  made.messages.push_back({.value = place.initial, .identity = 0, .view = {}, .taken = false});
  made.order = {0};
  made.place = {0};
  return at->second;
}

void Machine::join(View& into, const View& from, bool clocks) const {
  for (std::size_t i = 0; i < locations_.size(); ++i) {
    const auto& place = locations_[i].place;
    if (place[from.seen[i]] > place[into.seen[i]]) into.seen[i] = from.seen[i];
  }
  if (!clocks) return;
  for (std::size_t i = 0; i < kThreads; ++i) into.clock[i] = std::max(into.clock[i], from.clock[i]);
}

/// Chooses what a load reads, the newest message first.
std::size_t Machine::choose_message(Thread& thread, std::size_t location, bool sc) {
  const Location& of = locations_[location];
  std::size_t first = of.place[thread.now.seen[location]];
  const std::size_t last = of.order.size() - 1;
  if (sc) first = std::max<std::size_t>(first, of.place[sc_.seen[location]]);
  if (first < last && thread.stale[location] >= kStale &&
      of.order[first] == thread.now.seen[location]) {
    ++first;
  }
  return of.order[last - choose_(last - first + 1)];
}

void Machine::read(Thread& thread, std::size_t location, std::size_t message, int order) {
  const Location& of = locations_[location];
  const Message& it = of.messages[message];
  if (thread.now.seen[location] != message) {
    thread.stale[location] = 0;
  } else if (of.place[message] + 1U < of.order.size()) {
    ++thread.stale[location];
  }
  thread.now.seen[location] = static_cast<std::uint16_t>(message);
  join(thread.acquired, it.view);
  if (acquires(order)) join(thread.now, it.view);
  thread.history = mix(thread.history, it.identity);
}

void Machine::write(std::size_t by, std::size_t location, std::size_t place, Message message,
                    int order) {
  Thread& thread = threads_[by];
  Location& of = locations_[location];
  const auto id = static_cast<std::uint16_t>(of.messages.size());
  of.order.insert(of.order.begin() + static_cast<std::ptrdiff_t>(place), id);
  of.place.resize(of.order.size());
  for (std::size_t i = place; i < of.order.size(); ++i) {
    of.place[of.order[i]] = static_cast<std::uint16_t>(i);
  }
  thread.now.seen[location] = id;
  thread.stale[location] = 0;
  of.messages.push_back(std::move(message));
  Message& made = of.messages[id];
  View view = releases(order) ? thread.now : thread.released;
  view.seen[location] = 0;
  join(made.view, view);
  made.identity =
      mix(mix(mix(of.at, made.value), hash(made.view)), by + kThreads * ++thread.writes[location]);
  made.view.seen[location] = id;
  thread.history = mix(thread.history, made.identity);
  if (order == __ATOMIC_SEQ_CST) sc_.seen[location] = id;
  tick(by);
}

std::uint64_t Machine::load(std::size_t by, Place place, int order) {
  const std::size_t location = find(place);
  Thread& thread = threads_[by];
  const std::size_t message = choose_message(thread, location, order == __ATOMIC_SEQ_CST);
  read(thread, location, message, order);
  tick(by);
  return locations_[location].messages[message].value;
}

void Machine::store(std::size_t by, Place place, std::uint64_t value, int order) {
  const std::size_t location = find(place);
  const Location& of = locations_[location];
  std::size_t first = of.place[threads_[by].now.seen[location]];
  if (order == __ATOMIC_SEQ_CST) {
    first = std::max<std::size_t>(first, of.place[sc_.seen[location]]);
  }
  std::vector<std::size_t> places;  // the last one first
  for (std::size_t at = of.order.size(); at > first; --at) {
    if (!of.messages[of.order[at - 1]].taken) places.push_back(at);
  }
  const std::size_t at = places[choose_(places.size())];
  write(by, location, at, {.value = value, .identity = 0, .view = {}, .taken = false}, order);
}

std::uint64_t Machine::rmw(std::size_t by, Place place, const Next& next, int order,
                           int otherwise) {
  const std::size_t location = find(place);
  Location& of = locations_[location];
  Thread& thread = threads_[by];
  std::size_t first = of.place[thread.now.seen[location]];
  if (order == __ATOMIC_SEQ_CST) {
    first = std::max<std::size_t>(first, of.place[sc_.seen[location]]);
  }
  std::vector<std::size_t> possible;  // the newest one first
  std::uint64_t value = 0;
  for (std::size_t at = of.order.size(); at-- > first;) {
    const Message& message = of.messages[of.order[at]];
    if (!message.taken || !next(message.value, value)) possible.push_back(of.order[at]);
  }
  const std::size_t message = possible[choose_(possible.size())];
  const std::uint64_t old = of.messages[message].value;
  if (!next(old, value)) {
    read(thread, location, message, otherwise);
    tick(by);
    return old;
  }
  read(thread, location, message, order);
  of.messages[message].taken = true;
  const Message made{
      .value = value, .identity = 0, .view = of.messages[message].view, .taken = false};
  write(by, location, of.place[message] + std::size_t{1}, made, order);
  return old;
}

void Machine::fence(std::size_t by, int order) {
  Thread& thread = threads_[by];
  if (acquires(order)) join(thread.now, thread.acquired);
  if (order == __ATOMIC_SEQ_CST) {
    join(thread.now, sc_, false);
    join(sc_, thread.now, false);
    thread.history = mix(thread.history, hash(thread.now));
  }
  if (releases(order)) thread.released = thread.now;
  tick(by);
}

std::uint64_t Machine::latest(Place place) {
  const Location& of = locations_[find(place)];
  return of.messages[of.order.back()].value;
}

bool Machine::locked(std::uint64_t mutex) const {
  const auto at = mutexes_.find(mutex);
  return at != mutexes_.end() && at->second.held;
}

void Machine::lock(std::size_t by, std::uint64_t mutex) {
  Mutex& of = mutexes_[mutex];
  of.held = true;
  join(threads_[by].now, of.view);
  observe(by, mix(mutex, hash(of.view)));
}

void Machine::unlock(std::size_t by, std::uint64_t mutex) {
  Mutex& of = mutexes_[mutex];
  of.held = false;
  of.view = threads_[by].now;
  tick(by);
  observe(by, mutex);
}

bool Machine::plain(std::size_t by, std::uint64_t at, std::size_t size, bool writes) {
  const auto& clock = threads_[by].now.clock;
  for (std::uint64_t i = at / kCell; i <= (at + size - 1) / kCell; ++i) {
    Cell& cell = cells_[i];
    if (cell.written > clock[cell.writer]) return true;
    threads_[by].dirty = true;
    if (!writes) {
      cell.read[by] = clock[by];
      continue;
    }
    for (std::size_t other = 0; other < kThreads; ++other) {
      if (other != by && cell.read[other] > clock[other]) return true;
    }
    cell.writer = by;
    cell.written = clock[by];
  }
  return false;
}

bool Machine::races(std::size_t by, std::uint64_t at) const {
  const auto cell = cells_.find(at / kCell);
  return cell != cells_.end() && cell->second.written > threads_[by].now.clock[cell->second.writer];
}

std::uint64_t Machine::hash(const View& view) const {
  std::uint64_t sum = 0;  // which location was met first depends on the order of events
  for (std::size_t i = 0; i < locations_.size(); ++i) {
    if (view.seen[i] == 0) continue;
    sum += mix(locations_[i].at, locations_[i].messages[view.seen[i]].identity);
  }
  for (const std::uint16_t clock : view.clock) sum = mix(sum, clock);
  return sum;
}

std::uint64_t Machine::hash() const {
  std::uint64_t sum = hash(sc_);
  for (const Thread& thread : threads_) {
    sum = mix(mix(sum, thread.history), hash(thread.now));
    sum = mix(mix(sum, hash(thread.acquired)), hash(thread.released));
    sum = mix(sum, static_cast<std::uint64_t>(thread.dirty));
  }
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < locations_.size(); ++i) {
    const Location& of = locations_[i];
    if (of.order.size() == 1) continue;
    std::uint64_t here = of.at;
    for (const std::uint16_t id : of.order) {
      here =
          mix(here, of.messages[id].identity + static_cast<std::uint64_t>(of.messages[id].taken));
    }
    for (const Thread& thread : threads_) here = mix(here, thread.stale[i]);
    all += here;
  }
  for (const auto& [at, mutex] : mutexes_) {
    all += mix(mix(at, hash(mutex.view)), static_cast<std::uint64_t>(mutex.held));
  }
  for (const auto& [at, cell] : cells_) {
    std::uint64_t here = mix(at, cell.writer + kThreads * cell.written);
    for (const std::uint16_t read : cell.read) here = mix(here, read);
    all += here;
  }
  return mix(sum, all);
}

}  // namespace hvd::weak
