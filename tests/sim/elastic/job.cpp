#include "elastic/job.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace hvd::sim::elastic {
namespace {

constexpr int kMostWorkers = 4'096;
constexpr std::uint64_t kMostEvents = 400'000;
constexpr Nanos kLongest = 3'600 * kSecond;
constexpr Nanos kForEver = 1'000'000 * kSecond;

}  // namespace

Job::Job(std::uint64_t seed, int ranks, bool verbose)
    : random(seed ^ 0xe1a5'71c0'0000'0000),
      events(kMostWorkers),
      trace(verbose),
      plan(draw_plan(random, ranks)),
      oracle(*this),
      driver(*this, plan.options) {}

void Job::run() {
  driver.list(plan.slots);
  bool ending = false;
  while (!driver.end()) {
    if (!events.step()) throw Violation("liveness", "nothing happens any more");
    trace.mix(static_cast<std::uint64_t>(events.now()));
    if (events.events() > kMostEvents) throw Violation("liveness", "there is no end of events");
    if (events.now() > kLongest) {
      throw Violation("liveness", fmt::format("not over after an hour, {} steps", oracle.steps()));
    }
    if (oracle.is_done() && !std::exchange(ending, true)) {
      // The user ends what is stopped for ever.
      events.at(events.now() + 10 * kSecond, [this] {
        for (const auto& one : workers) {
          if (one->paused_since()) one->die(137);
        }
      });
    }
  }
  trace.mix(static_cast<std::uint64_t>(driver.end()->code));
}

void Job::add_worker(int number, std::size_t host) {
  if (number != static_cast<int>(workers.size())) throw Violation("numbers", "of workers");
  if (number >= kMostWorkers) throw Violation("liveness", "too many workers are started");
  workers.push_back(std::make_unique<Worker>(*this, number, host));
}

void Job::add_generation(std::uint32_t number, const std::vector<int>& members) {
  generations.emplace(number, std::make_unique<Generation>(*this, number, members));
}

// ---- time

Nanos Job::nanos(Clock::time_point time) const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time - time_point_at(0)).count();
}

int Job::slowness(std::size_t host) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && events.now() < found->second.slow_until ? 40 : 1;
}

Nanos Job::local(std::size_t host) { return random.spread(kMicro, 100 * kMicro) * slowness(host); }

Nanos Job::message(std::size_t host) {
  return random.spread(20 * kMicro, 5 * kMilli) * slowness(host);
}

Nanos Job::transfer(int number) {
  return random.spread(10 * kMicro, 4 * kMilli) * slowness(host_of(number));
}

// ---- faults

std::optional<Nanos> Job::cut_since(std::size_t a, std::size_t b) const {
  for (const Cut& cut : cuts_) {
    const bool these = (cut.a == a && cut.b == b) || (cut.a == b && cut.b == a);
    if (these && events.now() < cut.until) return cut.since;
  }
  return std::nullopt;
}

bool Job::was_cut(std::size_t host) const {
  return std::any_of(cuts_.begin(), cuts_.end(),
                     [host](const Cut& cut) { return cut.a == host || cut.b == host; });
}

bool Job::is_down(std::size_t host) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && events.now() < found->second.down_until;
}

void Job::boundary() {
  ++boundaries_;
  while (next_fault_ < plan.faults.size() && plan.faults[next_fault_].boundary <= boundaries_) {
    if (driver.end()) return;
    strike(plan.faults[next_fault_++]);
  }
}

void Job::forming(const std::vector<int>& members) {
  const auto drawn = std::exchange(leaves_when_forming_, std::nullopt);
  if (drawn) worker(members[static_cast<std::size_t>(*drawn) % members.size()]).ask_to_leave();
}

void Job::sends_state(int number) {
  if (!std::exchange(sender_dies_, false)) return;
  events.at(events.now() + random.spread(10 * kMicro, 4 * kMilli),
            [this, number] { worker(number).die(137); });
}

Worker* Job::victim(const FaultPlan& fault) {
  std::vector<Worker*> alive;
  for (const auto& one : workers) {
    if (one->alive() && !is_down(one->host())) alive.push_back(one.get());
  }
  if (alive.empty()) return nullptr;
  if (fault.victim % 10 < 4) return alive.front();  // mostly rank 0
  if (fault.victim % 10 < 6) return alive.back();   // the youngest
  return alive[static_cast<std::size_t>(fault.victim / 10) % alive.size()];
}

void Job::watch_all() {
  for (const auto& [number, one] : generations) one->watch();
}

/// If all members of a generation are stopped, nobody can tell that they do not compute. So the
/// user ends them.
void Job::end_if_alone(int number) {
  events.at(events.now() + 120 * kSecond, [this, number] {
    if (!is_alive(number)) return;
    const auto last = generations.find(driver.generation());
    if (last == generations.end() || !last->second->has_only_stopped()) return end_if_alone(number);
    worker(number).die(137);
  });
}

void Job::strike(const FaultPlan& fault) {
  Worker* const hit = victim(fault);
  if (hit == nullptr) return;
  const std::size_t host = hit->host();
  const Nanos now = events.now();
  trace.say(now, hit->number(), "fault: {}", to_string(fault.kind));
  switch (fault.kind) {
    case FaultKind::crash:
      hit->die(137);
      sender_dies_ = fault.victim % (plan.mirrored ? 2 : 5) == 0;
      break;
    case FaultKind::throws:
      hit->die(1);
      break;
    case FaultKind::pause:
      hit->pause(now + fault.length / (fault.victim % 3 == 0 ? 1 : 16));
      watch_all();
      break;
    case FaultKind::freeze:
      hit->pause(kForEver);
      watch_all();
      end_if_alone(hit->number());
      break;
    case FaultKind::cut:
    case FaultKind::cut_for_ever: {
      const std::size_t other = static_cast<std::size_t>(fault.victim) % plan.slots.size();
      if (other == host) return;
      const bool for_ever = fault.kind == FaultKind::cut_for_ever;
      cuts_.push_back({host, other, now, for_ever ? kForEver : now + fault.length});
      for (const auto& one : workers) {
        if (one->host() == host || one->host() == other) one->strike();
      }
      watch_all();
      break;
    }
    case FaultKind::agent_lost:
    case FaultKind::host_lost: {
      const bool silent = fault.kind == FaultKind::host_lost;
      if (silent) hosts_[host].down_until = now + fault.length;
      for (const auto& one : workers) {
        if (one->host() == host) one->strike();
      }
      // The events of this run must not go on within the worker that has just died.
      events.at(now, [this, host, silent] {
        for (const auto& one : workers) {
          if (one->host() == host) one->die(137, true);
        }
        if (!silent) return driver.lose(host);
        driver.lose_later(host);
      });
      break;
    }
    case FaultKind::slow:
      hosts_[host].slow_until = now + fault.length;
      break;
    case FaultKind::leave:
      // Its request and an assignment can cross.
      if (fault.victim % 4 == 0) {
        leaves_when_forming_ = fault.victim;
      } else {
        hit->ask_to_leave();
      }
      break;
    case FaultKind::host_gone:
      events.at(now, [this, host] {
        std::vector<int> slots = driver.slots();
        slots[host] = 0;
        driver.list(slots);
      });
      break;
    case FaultKind::new_slots:
      events.at(now, [this, host, drawn = fault.victim] {
        std::vector<int> slots = driver.slots();
        if (drawn % 5 == 0 && slots[host] > 1) {
          --slots[host];
        } else {
          if (drawn % 2 == 0) slots.push_back(0);
          slots.back() = 1 + drawn % 3;
        }
        driver.list(slots);
      });
      break;
  }
  faults[static_cast<std::size_t>(fault.kind)] = true;
  rank_0_struck = rank_0_struck || fault.victim % 10 < 4;
}

}  // namespace hvd::sim::elastic
