#include "elastic/oracle.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "elastic/job.hpp"

namespace hvd::sim::elastic {
namespace {

constexpr Nanos kLongestPatience = 5 * kSecond;  // Membership::Options::leaving
// hvdrun doubles the cooldown if two failures of a host are at most this far apart. It allows a
// minute, but from the failure that began the cooldown, which may have been before the first of
// these two.
constexpr Nanos kSoon = 30 * kSecond;

}  // namespace

// ---- what hvdrun decides

void Oracle::lists(const std::vector<int>& slots) {
  std::erase_if(left_hosts_, [&slots](std::size_t host) { return slots[host] == 0; });
}

void Oracle::starts(int worker) {
  int alive = 0;
  for (const auto& one : job_.workers) {
    if (!over_.contains(one->number()) && !killed_.contains(one->number())) ++alive;
  }
  if (alive > job_.plan.options.max_np) {
    throw Violation("the most ranks", fmt::format("worker {} is one too many", worker));
  }
  Host& host = hosts_[job_.host_of(worker)];
  if (!host.failed_at) return;
  check_cooldown(host);
  host.before = std::exchange(host.failed_at, std::nullopt);
}

void Oracle::check_cooldown(const Host& host) const {
  // Other faults let hvdrun exclude hosts, which counts as a failure of theirs.
  for (const FaultKind other :
       {FaultKind::pause, FaultKind::freeze, FaultKind::cut, FaultKind::cut_for_ever,
        FaultKind::agent_lost, FaultKind::host_lost, FaultKind::slow}) {
    if (job_.faults[static_cast<std::size_t>(other)]) return;
  }
  const auto& options = job_.plan.options;
  const bool again = host.before && *host.failed_at - *host.before <= kSoon;
  const auto cooldown =
      again ? std::min(2 * options.least_cooldown, options.most_cooldown) : options.least_cooldown;
  if (job_.events.now() < job_.nanos(time_point_at(*host.failed_at) + cooldown)) {
    throw Violation(
        "a host that fails cools down",
        fmt::format("it failed at {} and {}", host.before.value_or(-1), *host.failed_at));
  }
}

void Oracle::knows_end_of(int worker, std::optional<int> code) {
  if (!over_.insert(worker).second) return;
  const auto assigned = assigned_.find(worker);
  const bool is_member = assigned != assigned_.end() && heard_.at(worker) < assigned->second;
  if (ended_well_) {
    const int failure = code.value_or(Membership::kExitHostLost);
    if (is_member && failure != 0 && !code_) code_ = failure;
    return;
  }
  ended_well_ = code == 0 && assigned != assigned_.end() && !told_to_leave_.contains(worker);
  if (ended_well_ || code.value_or(0) == 0) return;
  Host& host = hosts_[job_.host_of(worker)];
  if (!host.failed_at) host.failed_at = job_.events.now();
}

void Oracle::forms(const Membership::Form& form) {
  int oldest = -1;
  std::vector<std::size_t> hosts;
  for (const int number : form.workers) {
    const Worker& worker = job_.worker(number);
    check_waits(number);
    assigned_[number] = form.generation;
    if (worker.alive() && !worker.waits()) {
      throw Violation("one generation", fmt::format("worker {} does not wait", number));
    }
    if (worker.has_had_state() && (oldest < 0 || number < oldest)) oldest = number;
    const std::size_t host = worker.host();
    if (!hosts.empty() && hosts.back() == host) continue;
    if (std::find(hosts.begin(), hosts.end(), host) != hosts.end()) {
      throw Violation("ranks of a host follow each other", fmt::format("host {}", host));
    }
    hosts.push_back(host);
  }
  if (oldest >= 0 && form.workers.front() != oldest) {
    throw Violation("the oldest is rank 0",
                    fmt::format("{} instead of {}", form.workers.front(), oldest));
  }
  if (static_cast<int>(form.workers.size()) < job_.plan.options.min_np) {
    throw Violation("the least number of ranks", fmt::format("{}", form.workers.size()));
  }
  for (const auto& [host, member_asked] : std::exchange(asking_hosts_, {})) {
    const auto stays = [this, left = host](int number) { return job_.host_of(number) != left; };
    const auto others = std::count_if(form.workers.begin(), form.workers.end(), stays);
    if (others == std::ssize(form.workers)) {
      left_hosts_.insert(host);
      continue;
    }
    const bool has_state = std::any_of(form.workers.begin(), form.workers.end(), [&](int number) {
      return stays(number) && job_.worker(number).has_had_state();
    });
    if (member_asked && has_state && others >= job_.plan.options.min_np) {
      throw Violation("a host leaves as a whole", fmt::format("host {}", host));
    }
  }
  forms_[form.generation] = form;
}

void Oracle::check_waits(int worker) const {
  const auto assigned = assigned_.find(worker);
  if (assigned == assigned_.end() || heard_.at(worker) >= assigned->second) return;
  throw Violation("who gets an order waits",
                  fmt::format("worker {} is in generation {}", worker, assigned->second));
}

void Oracle::hears(int worker, const detail::Waits& waits) {
  if (over_.contains(worker)) return;  // the report of its end has overtaken this
  const std::uint32_t before =
      std::exchange(heard_[worker], std::max(heard_[worker], waits.generation));
  if (waits.generation > before && !waits.start_failed) trained_at_ = job_.events.now();
  if (waits.leaves && !told_to_leave_.contains(worker)) {
    const bool is_member = !forms_.empty() && waits.generation == forms_.rbegin()->first;
    bool& member_asks = asking_hosts_[job_.host_of(worker)];
    member_asks = member_asks || is_member;
  }
  if (waits.blames < 0 || blamed_.contains({waits.generation, worker})) return;
  const int blamed = forms_.at(waits.generation).workers.at(static_cast<std::size_t>(waits.blames));
  blamed_.emplace(std::pair(waits.generation, blamed), job_.events.now());
}

void Oracle::kills(int worker) {
  killed_.insert(worker);
  const auto blamed = blamed_.find({forms_.rbegin()->first, worker});
  if (blamed != blamed_.end() && job_.events.now() > blamed->second + kLongestPatience) {
    throw Violation("who is blamed is killed soon", fmt::format("worker {}", worker));
  }
  // A pause or a cut is a reason; so is that all others have waited for very long.
  if (job_.worker(worker).struck() || !job_.worker(worker).alive()) return;
  throw Violation("no worker is killed without a reason", fmt::format("worker {}", worker));
}

void Oracle::tells_to_leave(int number) {
  check_waits(number);
  told_to_leave_.insert(number);
  const Worker& worker = job_.worker(number);
  if (done_ || worker.asked_to_leave() || worker.struck() || job_.was_cut(worker.host())) return;
  if (asking_hosts_.contains(worker.host()) || left_hosts_.contains(worker.host())) return;
  // If a start fails and ranks cannot tell why, hvdrun may suspect a host that is sound.
  const bool has_started = forms_.empty() || started_.contains(forms_.rbegin()->first);
  if (!has_started && start_was_disturbed()) return;
  int neighbours = 0;
  int others = 0;
  for (const auto& one : job_.workers) {
    if (over_.contains(one->number()) || one->number() == number) continue;
    ++others;
    if (one->host() == worker.host()) ++neighbours;
  }
  const bool fits = neighbours < job_.driver.slots().at(worker.host());
  if (fits && others < job_.plan.options.max_np) {
    throw Violation("no worker leaves without a reason", fmt::format("worker {}", number));
  }
}

void Oracle::finishes(const Membership::Finish& finish) {
  if (finish.code == 0 && !done_) throw Violation("the end", "0 although nobody has finished");
  if (ended_well_ && killed_.empty() && finish.code != code_.value_or(0)) {
    throw Violation("the end", fmt::format("code {} for {}", finish.code, code_.value_or(0)));
  }
  const auto& faults = job_.faults;
  if (finish.code != 0 && std::find(faults.begin(), faults.end(), true) == faults.end()) {
    throw Violation("the end", fmt::format("code {} without a fault", finish.code));
  }
  if (done_ || finish.code == 0) return;
  // Nobody is left, and nobody ever trained: the program fails at its start.
  const bool started = !forms_.empty() || over_.size() < job_.workers.size();
  if (finish.code != Membership::kExitRetry) {
    if (started) throw Violation("the end", fmt::format("code {}", finish.code));
  } else if (finish.why.starts_with("no worker is left")) {
    check_state_is_lost();
  } else if (finish.why.find(" of at least ") != std::string::npos) {
    check_patience();
    check_too_few();
  } else if (finish.why.starts_with("no generation has started")) {
    check_patience();
    if (!start_was_disturbed()) throw Violation("the end", "a start failed without a reason");
  } else {
    const auto most = job_.plan.options.reset_limit;
    const int changes = static_cast<int>(forms_.size()) - 1;
    if (!most || changes < *most) throw Violation("the end", finish.why);
  }
}

void Oracle::check_state_is_lost() const {
  for (const auto& one : job_.workers) {
    if (!one->waits() || told_to_leave_.contains(one->number())) continue;
    if (one->has_whole_state()) {
      throw Violation("the end", fmt::format("worker {} has the state", one->number()));
    }
    if (may_begin_anew(one->number())) {
      throw Violation("the end", fmt::format("worker {} may begin anew", one->number()));
    }
  }
}

/// The job had all of `--elastic-timeout` since it trained last.
void Oracle::check_patience() const {
  if (job_.events.now() < job_.nanos(time_point_at(trained_at_) + job_.plan.options.timeout)) {
    throw Violation("the end", fmt::format("too early, it trained until {}", trained_at_));
  }
}

/// The workers that wait, the oldest for the slots of each host, are no generation.
void Oracle::check_too_few() const {
  std::map<std::size_t, int> used;
  int fit = 0;
  bool may_lead = forms_.empty();
  for (const auto& one : job_.workers) {
    const int number = one->number();
    const auto heard = heard_.find(number);
    const auto assigned = assigned_.find(number);
    if (heard == heard_.end() || over_.contains(number) || told_to_leave_.contains(number))
      continue;
    if (assigned != assigned_.end() && heard->second < assigned->second) continue;
    if (left_hosts_.contains(one->host())) continue;
    if (used[one->host()] == job_.driver.slots().at(one->host())) continue;
    ++used[one->host()];
    ++fit;
    may_lead = may_lead || one->has_had_state() || may_begin_anew(number);
  }
  if (fit >= job_.plan.options.min_np && may_lead) {
    throw Violation("the end", fmt::format("{} workers wait, which are enough", fit));
  }
}

/// A pause or a cut tells why the last generation has not started.
bool Oracle::start_was_disturbed() const {
  const std::vector<int>& members = forms_.rbegin()->second.workers;
  return std::any_of(members.begin(), members.end(), [this](int member) {
    return job_.worker(member).struck() || job_.was_cut(job_.host_of(member));
  });
}

bool Oracle::may_begin_anew(int worker) const {
  return forms_.size() == 1 && assigned_.contains(worker) && nobody_has_trained();
}

/// Some member of the first generation has never synchronized it.
bool Oracle::nobody_has_trained() const {
  const auto started = started_.find(1);
  return job_.plan.certain &&
         (started == started_.end() || started->second < std::ssize(forms_.at(1).workers));
}

// ---- what workers do

void Oracle::assigned(const Worker& worker, std::uint32_t generation, int rank) {
  if (forms_.at(generation).workers.at(static_cast<std::size_t>(rank)) != worker.number()) {
    throw Violation("ranks", fmt::format("worker {} is not rank {}", worker.number(), rank));
  }
}

void Oracle::gathers(std::uint32_t generation, const Standing& standing, const Model& model,
                     const Model& commit) {
  Reached& best = best_[generation];
  if (standing.is_sound()) best = std::max(best, Reached(model.steps, standing.iterations));
  if (standing.commits > 0) best = std::max(best, Reached(commit.steps, 0));
}

void Oracle::no_source(std::uint32_t generation) {
  if (const int steps = best_[generation].first; steps > 0 && has_all_shards(generation)) {
    throw Violation("no step is lost", fmt::format("there was a state after {}", steps));
  }
  if (generation == 2 && nobody_has_trained()) {
    throw Violation("losing rank 0 is no special case", "nobody has trained");
  }
}

/// Of each member of the last generation that has trained, and of those since, it or the next rank,
/// which has its mirror, is a member of this one.
bool Oracle::has_all_shards(std::uint32_t generation) const {
  if (!job_.plan.mirrored) return true;
  const std::vector<int>& now = forms_.at(generation).workers;
  for (auto form = forms_.find(last_generation_); form->first < generation; ++form) {
    const std::vector<int>& then = form->second.workers;
    const auto is_there = [&now, &then](std::size_t rank) {
      return std::find(now.begin(), now.end(), then[rank % then.size()]) != now.end();
    };
    for (std::size_t rank = 0; rank < then.size(); ++rank) {
      if (!is_there(rank) && !is_there(rank + 1)) return false;
    }
  }
  return true;
}

/// All ranks have the same bits at the same place.
void Oracle::agree(std::uint32_t generation, int step, const Model& model) {
  const auto [at, is_first] = digests_.emplace(std::pair(generation, step), model.digest);
  if (!is_first && at->second != model.digest) {
    throw Violation("bit-identical ranks", fmt::format("generation {}, step {}", generation, step));
  }
}

void Oracle::synchronized(const Worker& worker, std::uint32_t generation, const Standing& standing,
                          const Model& model) {
  job_.trace.mix(model.digest);
  ++started_[generation];
  if (model.damaged) {
    throw Violation("whole states", fmt::format("worker {} goes on", worker.number()));
  }
  agree(generation, -1, model);
  if (model.steps > 0 && !completed_.contains(model.digest)) {
    throw Violation("whole states", fmt::format("worker {} has that of no step", worker.number()));
  }
  const auto [steps, iterations] = best_[generation];
  if (Reached(model.steps, standing.iterations) < Reached(steps, iterations)) {
    throw Violation(
        "no step is lost",
        fmt::format("worker {} goes on after {} ({}), another rank had {} ({})", worker.number(),
                    model.steps, standing.iterations, steps, iterations));
  }
  // Those who are left lack at most the step that was under way, and what follows a commit.
  const int lost = furthest_ - model.steps;
  const int most = job_.plan.certain ? 1 : job_.plan.commit_every + 1;
  if (lost > most) {
    throw Violation("no step is lost", fmt::format("{} of {} steps", lost, furthest_));
  }
}

void Oracle::step_completed(const Worker& worker, std::uint32_t generation, int step,
                            const Model& model) {
  job_.trace.say(job_.events.now(), worker.number(), "completes step {} of generation {}",
                 model.steps, generation);
  job_.trace.mix(model.digest);
  if (generation < last_generation_) {
    throw Violation("one generation",
                    fmt::format("a step in {} after one in {}", generation, last_generation_));
  }
  last_generation_ = generation;
  furthest_ = std::max(furthest_, model.steps);
  completed_.insert(model.digest);
  agree(generation, step, model);
}

void Oracle::epoch_is_over(const Worker& worker, const Model& model) const {
  for (int i = 0; i < job_.plan.samples; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (model.used.at(at) == model.allowed.at(at)) continue;
    throw Violation("every sample once",
                    fmt::format("worker {}, epoch {}: sample {} {} times for {}", worker.number(),
                                model.epoch, i, model.used.at(at), model.allowed.at(at)));
  }
}

void Oracle::finished(const Worker& worker, const Model& model) {
  epoch_is_over(worker, model);
  if (model.epoch + 1 != job_.plan.epochs) throw Violation("the end", "an epoch is missing");
  done_ = true;
}

}  // namespace hvd::sim::elastic
