#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/internal/membership.hpp>

namespace hvd::detail {

namespace {

// The exit code of a shell whose command SIGKILL has ended.
constexpr int kExitKilled = 128 + 9;

// A failure within this time after the last one is soon. The time is long, because a program may
// run for a while before it fails.
constexpr std::chrono::minutes kSoon{1};

}  // namespace

// ---- events

auto Membership::on_hosts(const std::vector<int>& slots, Clock::time_point now) -> Orders {
  hosts_.resize(std::max(hosts_.size(), slots.size()));
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i].slots = i < slots.size() ? slots[i] : 0;
    hosts_[i].leaves = hosts_[i].leaves && hosts_[i].slots > 0;
    give_up(i, hosts_[i].given_up);
  }
  return decide(now);
}

auto Membership::on_waits(int worker, const Waits& waits, Clock::time_point now) -> Orders {
  Worker& self = worker_at(worker);
  const bool crossed = self.state == State::member && waits.generation < self.assigned;
  if (self.state == State::over || self.state == State::leaving || crossed) return {};
  self.leaves = waits.leaves;
  const bool was_member = self.state == State::member;
  // A newcomer does not take members along that train.
  if (waits.leaves && (was_member || !runs())) hosts_[self.host].asked = true;
  if (self.state == State::waiting) return decide(now);
  // Others have not heard this worker, so it is no wonder that it has not heard them. If they only
  // say that it has left, whom it blames may be why it has.
  const bool is_blamed = std::exchange(self.unheard, false);
  self.killed_at.reset();
  self.state = State::waiting;
  self.since = now;
  if (!was_member) return decide(now);
  begin_breaking(now);
  if (!waits.start_failed) {
    self.has_state = true;
    too_few_since_.reset();
  }
  all_started_ = all_started_ && !waits.start_failed;
  explained_ = explained_ || waits.leaves || !waits.start_failed;
  const auto blamed = static_cast<std::size_t>(waits.blames);
  if (waits.blames < 0 || blamed >= ranks_.size()) return decide(now);
  const int number = ranks_[blamed];
  if (waits.start_failed) {
    did_not_come_ = number;
  } else if (!waits.blamed_left) {
    silent_.emplace_back(worker, number);
  }
  Worker& other = worker_at(number);
  const auto patience = waits.blamed_left ? options_.leaving : options_.settle;
  if (in_motion(other) && !is_blamed && !waits.blamed_left) other.unheard = true;
  if (in_motion(other) && !other.killed_at && !is_blamed) other.killed_at = now + patience;
  return decide(now);
}

auto Membership::on_exit(int worker, int code, Clock::time_point now) -> Orders {
  Worker& self = worker_at(worker);
  const State before = std::exchange(self.state, State::over);
  if (before == State::over) return {};
  if (before == State::member) begin_breaking(now, true);
  const bool obeyed = before == State::leaving && code == 0;
  if (self.leaves) give_up(self.host, hosts_[self.host].given_up + 1);
  if (done_) {
    if (code_ == 0 && before == State::member) code_ = code;
  } else if (code == 0 && !obeyed && (generation_ == 0 || self.was_member)) {
    done_ = true;
  } else if (!obeyed) {  // a newcomer that exits with 0 has left too
    if (first_failure_ == 0) first_failure_ = code;
    fail(self.host, now, now);
  }
  return decide(now);
}

auto Membership::on_host_lost(std::size_t host, Clock::time_point now) -> Orders {
  fail(host, now, now);
  for (Worker& worker : workers_) {
    if (worker.host != host || worker.state == State::over) continue;
    if (worker.state == State::member) {
      begin_breaking(now, true);
      if (done_ && code_ == 0) code_ = kExitHostLost;  // nobody knows whether it finished
    }
    worker.state = State::over;
  }
  return decide(now);
}

/// Slots are given up only while no worker runs on them, so that those that a host loses are first
/// the ones that were given up.
void Membership::give_up(std::size_t host, int slots) {
  const auto running = std::count_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return worker.host == host && worker.state != State::over;
  });
  hosts_[host].given_up = std::clamp(hosts_[host].slots - static_cast<int>(running), 0, slots);
}

/// A host fails once when several of its workers fail together. A failure soon after another one
/// doubles the cooldown.
void Membership::fail(std::size_t index, Clock::time_point since, Clock::time_point now) {
  Host& host = hosts_[index];
  if (now < host.free_at) return;
  const bool long_ago = !host.failed_at || since - *host.failed_at >
                                               std::max<Clock::duration>(2 * host.cooldown, kSoon);
  host.cooldown =
      long_ago ? options_.least_cooldown : std::min(2 * host.cooldown, options_.most_cooldown);
  host.failed_at = now;
  host.free_at = now + host.cooldown;
}

/// The host counts as failed, and its workers that wait leave.
void Membership::exclude(std::size_t host, Clock::time_point now) {
  fail(host, hosts_[host].started_at, now);
  for (Worker& worker : workers_) {
    if (worker.host == host && worker.state == State::waiting) worker.sent_away = true;
  }
}

void Membership::begin_breaking(Clock::time_point now, bool is_loss) {
  if (!std::exchange(breaking_, true)) breaking_since_ = now;
  explained_ = explained_ || is_loss;
}

// ---- decisions

int Membership::count(State state) const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(),
                    [state](const Worker& worker) { return worker.state == state; }));
}

bool Membership::in_motion(const Worker& worker) const { return worker.state == State::member; }

int Membership::slots_of(const Host& host) const {
  return host.leaves ? 0 : std::max(host.slots - host.given_up, 0);
}

void Membership::wake_at(Clock::time_point time) {
  if (!wake_up_ || time < *wake_up_) wake_up_ = time;
}

auto Membership::decide(Clock::time_point now) -> Orders {
  Orders orders;
  wake_up_.reset();
  if (finished_) return orders;
  if (breaking_) break_up(orders, now);
  send_away(orders);
  if (done_) {
    // A newcomer that still starts may take long, only to be told to leave. The end kills it. The
    // first workers may be of a program that never asks for a generation.
    const int starting = generation_ == 0 ? count(State::starting) : 0;
    if (count(State::member) + count(State::waiting) + count(State::leaving) + starting == 0) {
      finish(orders, code_, "");
    }
    return orders;
  }
  if (running_ && !breaking_) {
    ask_for_change(orders, now);
  } else if (!running_) {
    form(orders, now);
  }
  if (!finished_) start_workers(orders, now);
  return orders;
}

/// While no step can have been completed, a worker that was a member may lead too: it has what the
/// program made.
bool Membership::may_lead(const Worker& worker) const {
  return worker.has_state || (!trained_ && worker.was_member);
}

/// Excludes hosts between which there is no connection, though hvdrun reaches all of them.
void Membership::separate_hosts(Clock::time_point now) {
  const auto host_at = [this](int worker) { return worker_at(worker).host; };
  const auto waits = [this](int worker) { return worker_at(worker).state == State::waiting; };
  const auto is_excluded = [&](std::size_t host) {
    return std::any_of(ranks_.begin(), ranks_.end(), [&](int number) {
      return host_at(number) == host && worker_at(number).sent_away;
    });
  };
  // The number of workers that wait and can go on with `one` if `other` is excluded.
  const auto side = [&](std::size_t one, std::size_t other) {
    return std::count_if(ranks_.begin(), ranks_.end(), [&](int number) {
      const bool blames = std::any_of(silent_.begin(), silent_.end(), [&](const auto& pair) {
        return pair.first == number && host_at(pair.second) == other;
      });
      return waits(number) && (host_at(number) == one || blames);
    });
  };
  // Of two hosts this gets the one with the older worker first, which a tie favours.
  for (const int older : ranks_) {
    for (const int younger : ranks_) {
      const std::size_t one = host_at(older);
      const std::size_t other = host_at(younger);
      // A worker that does not wait was frozen or has ended, and that is why others blame it.
      const auto blame = [&](std::size_t accuser, std::size_t accused) {
        return std::any_of(silent_.begin(), silent_.end(), [&](const auto& pair) {
          return waits(pair.first) && waits(pair.second) && host_at(pair.first) == accuser &&
                 host_at(pair.second) == accused;
        });
      };
      if (one == other || !blame(one, other) || !blame(other, one)) continue;
      if (is_excluded(one) || is_excluded(other)) continue;
      exclude(side(one, other) >= side(other, one) ? other : one, now);
    }
  }
  if (explained_) return;
  // Nothing tells why the generation has not started. Without the host that did not come, or the
  // youngest one, the next may.
  const std::size_t first = host_at(ranks_.front());
  const std::size_t blamed = host_at(did_not_come_.value_or(ranks_.front()));
  const std::size_t suspect = blamed == first ? host_at(ranks_.back()) : blamed;
  if (suspect != first) exclude(suspect, now);
}

/// Waits until no member of the generation is left in motion.
void Membership::break_up(Orders& orders, Clock::time_point now) {
  for (const int number : ranks_) {
    Worker& worker = worker_at(number);
    if (!in_motion(worker)) continue;
    if (!std::exchange(worker.told, true)) {
      orders.emplace_back(Tell{.worker = number, .order = Change{}});
    }
    if (worker.killed) {
      // A process that is stuck in the kernel does not end. The others go on without it.
      const auto due = *worker.killed_at + options_.leaving;
      if (due > now) {
        wake_at(due);
      } else {
        worker.state = State::over;
        if (done_ && code_ == 0) code_ = kExitKilled;
        fail(worker.host, now, now);
      }
      continue;
    }
    // After the training a worker may take its time, for example to evaluate the model.
    if (done_ && !worker.killed_at) continue;
    // Its process may be stopped although its last generation ended before anyone noticed.
    const auto due = worker.killed_at.value_or(breaking_since_ + options_.timeout);
    if (due > now) {
      wake_at(due);
    } else {
      worker.killed = true;
      orders.emplace_back(Kill{.worker = number,
                               .why = worker.killed_at ? "another rank has lost it"
                                                       : "the others have waited too long for it"});
      worker.killed_at = now;
      wake_at(now + options_.leaving);
    }
  }
  if (count(State::member) > 0) return;
  separate_hosts(now);
  // A step needs all members.
  trained_ = trained_ ||
             (all_started_ && std::any_of(ranks_.begin(), ranks_.end(),
                                          [&](int number) { return worker_at(number).has_state; }));
  breaking_ = false;
  running_ = false;
}

/// Tells those to leave who asked for it or are to be excluded, and, after the program has finished
/// somewhere, all who wait.
void Membership::send_away(Orders& orders) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.state != State::waiting || !(worker.leaves || worker.sent_away || done_)) {
      continue;
    }
    worker.state = State::leaving;
    orders.emplace_back(Tell{.worker = static_cast<int>(i), .order = Leave{}});
  }
}

/// A host of which a worker was asked to leave is about to be taken away. It leaves as a whole if
/// the others can go on without it.
void Membership::let_hosts_leave() {
  for (Host& host : hosts_) {
    if (!host.asked) continue;
    host.leaves = true;
    const std::vector<int> others = candidates();
    host.leaves = static_cast<int>(others.size()) >= options_.min_np &&
                  std::any_of(others.begin(), others.end(),
                              [this](int number) { return may_lead(worker_at(number)); });
  }
}

/// Returns the workers that wait and fit into the slots of their hosts, the oldest of each host.
std::vector<int> Membership::candidates() const {
  std::vector<int> used(hosts_.size());
  std::vector<int> found;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.state != State::waiting) continue;
    if (used[worker.host] == slots_of(hosts_[worker.host])) continue;
    if (static_cast<int>(found.size()) == options_.max_np) break;
    ++used[worker.host];
    found.push_back(static_cast<int>(i));
  }
  return found;
}

void Membership::form(Orders& orders, Clock::time_point now) {
  let_hosts_leave();
  std::vector<int> ranks = candidates();
  const auto leads = [this](int number) { return may_lead(worker_at(number)); };
  if (generation_ > 0 && std::none_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.state == State::waiting && may_lead(worker);
      })) {
    return finish(orders, kExitRetry, "no worker is left that has the state of the training");
  }
  // A program that fails at its start on all hosts would fail again.
  if (generation_ == 0 && first_failure_ != 0 &&
      std::all_of(workers_.begin(), workers_.end(),
                  [](const Worker& worker) { return worker.state == State::over; })) {
    return finish(orders, first_failure_, "all workers have failed before they trained");
  }
  const bool enough = static_cast<int>(ranks.size()) >= options_.min_np &&
                      (generation_ == 0 || std::any_of(ranks.begin(), ranks.end(), leads));
  if (!too_few_since_) too_few_since_ = now;
  const auto deadline = *too_few_since_ + options_.timeout;
  if (!enough && now >= deadline) {
    return finish(orders, kExitRetry,
                  fmt::format("{} of at least {} workers (--min-np) were there after {:.1f} s "
                              "(--elastic-timeout)",
                              ranks.size(), options_.min_np,
                              static_cast<double>(options_.timeout.count()) / 1000.0));
  }
  if (enough && now >= deadline && generation_ > 0 && !explained_) {
    return finish(orders, kExitRetry,
                  fmt::format("no generation has started for {:.1f} s (--elastic-timeout)",
                              static_cast<double>(options_.timeout.count()) / 1000.0));
  }
  const bool first_waits = generation_ == 0 && count(State::starting) > 0 && now < deadline;
  if (!enough || first_waits) return wake_at(deadline);
  if (options_.reset_limit && generation_ > static_cast<std::uint32_t>(*options_.reset_limit)) {
    return finish(orders, kExitRetry,
                  fmt::format("the set of ranks has changed more than {} times (--reset-limit)",
                              *options_.reset_limit));
  }
  // Hosts are in the order of their oldest workers. Those with state come first, since rank 0 has
  // to have it.
  std::stable_partition(ranks.begin(), ranks.end(), leads);
  std::stable_partition(ranks.begin(), ranks.end(),
                        [this](int number) { return worker_at(number).has_state; });
  std::vector<std::ptrdiff_t> first(hosts_.size());
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    first[i] = std::find_if(ranks.begin(), ranks.end(),
                            [&](int number) { return worker_at(number).host == i; }) -
               ranks.begin();
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return first[worker_at(a).host] < first[worker_at(b).host];
  });
  for (const int number : ranks) {
    Worker& worker = worker_at(number);
    worker.state = State::member;
    worker.was_member = true;
    worker.told = false;
    worker.killed = false;
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].state != State::waiting) continue;
    workers_[i].state = State::leaving;
    orders.emplace_back(Tell{.worker = static_cast<int>(i), .order = Leave{}});
  }
  ++generation_;
  for (const int number : ranks) worker_at(number).assigned = generation_;
  explained_ = false;
  all_started_ = true;
  for (Host& host : hosts_) host.asked = false;
  did_not_come_.reset();
  silent_.clear();
  running_ = true;
  ranks_ = ranks;
  orders.emplace_back(Form{.generation = generation_, .workers = std::move(ranks)});
}

/// Ends the generation at a step on which its members agree, when newcomers wait, or hosts are
/// gone.
void Membership::ask_for_change(Orders& orders, Clock::time_point now) {
  bool change = false;
  std::vector<int> members(hosts_.size());
  for (const Worker& worker : workers_) {
    if (worker.state == State::member) ++members[worker.host];
    if (worker.state != State::waiting) continue;
    const auto due = worker.since + options_.settle;
    change = change || count(State::starting) == 0 || now >= due;
    if (!change) wake_at(due);
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    change = change || members[i] > slots_of(hosts_[i]);
  }
  if (!change) return;
  explained_ = true;
  for (const int number : ranks_) {
    Worker& worker = worker_at(number);
    if (worker.state != State::member || std::exchange(worker.told, true)) continue;
    orders.emplace_back(Tell{.worker = number, .order = Change{}});
  }
}

void Membership::start_workers(Orders& orders, Clock::time_point now) {
  int alive = 0;
  std::vector<int> used(hosts_.size());
  for (const Worker& worker : workers_) {
    if (worker.state == State::over) continue;
    ++alive;
    ++used[worker.host];
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const int free = slots_of(hosts_[i]) - used[i];
    if (free <= 0 || alive >= options_.max_np) continue;
    if (hosts_[i].free_at > now) {
      wake_at(hosts_[i].free_at);
      continue;
    }
    for (int k = 0; k < free && alive < options_.max_np; ++k, ++alive) {
      orders.emplace_back(Start{.worker = static_cast<int>(workers_.size()), .host = i});
      workers_.push_back({.host = i, .since = now});
      hosts_[i].started_at = now;
    }
  }
}

void Membership::finish(Orders& orders, int code, const std::string& why) {
  finished_ = true;
  orders.emplace_back(Finish{.code = code, .why = why});
}

}  // namespace hvd::detail
