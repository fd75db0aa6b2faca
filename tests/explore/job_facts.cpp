#include "job_facts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "trace.hpp"

namespace hvd::explore {

using detail::Membership;
using sim::Violation;

namespace {

constexpr std::chrono::seconds kLongestPatience{5};  // Membership::Options::leaving

ExploredWorker& at(JobFacts::Workers& workers, int number) {
  return workers.at(static_cast<std::size_t>(number));
}

void check_waits(const ExploredWorker& worker, int number) {
  if (worker.heard >= worker.assigned) return;
  throw Violation("who gets an order waits",
                  fmt::format("worker {} is in generation {}", number, worker.assigned));
}

}  // namespace

// ---- what hvdrun decides

void JobFacts::forms(const Membership::Form& formed, const Membership::Options& options,
                     Workers& workers) {
  int oldest = -1;
  std::vector<std::size_t> hosts;
  for (const int number : formed.workers) {
    ExploredWorker& worker = at(workers, number);
    check_waits(worker, number);
    worker.assigned = formed.generation;
    if (worker.alive() && worker.phase != ExploredWorker::Phase::waiting) {
      throw Violation("one generation", fmt::format("worker {} does not wait", number));
    }
    if (worker.has_had_state && (oldest < 0 || number < oldest)) oldest = number;
    if (!hosts.empty() && hosts.back() == worker.host) continue;
    if (std::find(hosts.begin(), hosts.end(), worker.host) != hosts.end()) {
      throw Violation("ranks of a host follow each other", fmt::format("host {}", worker.host));
    }
    hosts.push_back(worker.host);
  }
  if (oldest >= 0 && formed.workers.front() != oldest) {
    throw Violation("the oldest is rank 0",
                    fmt::format("{} instead of {}", formed.workers.front(), oldest));
  }
  const auto size = std::ssize(formed.workers);
  if (size < options.min_np || size > options.max_np) {
    throw Violation("the number of ranks", fmt::format("{}", size));
  }
  for (const auto& [host, member_asked] : std::exchange(asking_hosts, {})) {
    const auto stays = [&, left = host](int number) { return at(workers, number).host != left; };
    const auto others = std::count_if(formed.workers.begin(), formed.workers.end(), stays);
    if (others == size) {
      left_hosts.insert(host);
      continue;
    }
    const bool has_state = std::any_of(formed.workers.begin(), formed.workers.end(), [&](int one) {
      return stays(one) && at(workers, one).has_had_state;
    });
    if (member_asked && has_state && others >= options.min_np) {
      throw Violation("a host leaves as a whole", fmt::format("host {}", host));
    }
  }
  if (formed.generation == 1) members_of_first = formed.workers.size();
  for (ExploredWorker& worker : workers) worker.blamed_at.reset();
  form = formed;
}

void JobFacts::hears(int number, const detail::Waits& waits, Clock::time_point now,
                     Workers& workers) {
  ExploredWorker& worker = at(workers, number);
  if (worker.known_over) return;  // the report of its end has overtaken this
  worker.heard = std::max(worker.heard, waits.generation);
  const bool is_member = form.generation > 0 && waits.generation == form.generation;
  if (waits.leaves && !worker.told_to_leave) {
    bool& member_asks = asking_hosts[worker.host];
    member_asks = member_asks || is_member;
  }
  if (waits.blames < 0 || !is_member) return;
  auto& blamed = at(workers, form.workers.at(static_cast<std::size_t>(waits.blames))).blamed_at;
  if (!blamed) blamed = now;
}

void JobFacts::kills(const ExploredWorker& worker, int number, Clock::time_point now) const {
  if (worker.blamed_at && now > *worker.blamed_at + kLongestPatience) {
    throw Violation("who is blamed is killed soon", fmt::format("worker {}", number));
  }
  if (worker.was_paused || !worker.alive()) return;
  throw Violation("no worker is killed without a reason", fmt::format("worker {}", number));
}

void JobFacts::tells_to_leave(int number, const std::vector<int>& slots, int max_np,
                              Workers& workers) {
  ExploredWorker& worker = at(workers, number);
  check_waits(worker, number);
  worker.told_to_leave = true;
  if (done || worker.asked || worker.was_paused) return;
  if (asking_hosts.contains(worker.host) || left_hosts.contains(worker.host)) return;
  // If a start fails and ranks cannot tell why, hvdrun may suspect a host that is sound.
  if (!started.contains(form.generation) && had_paused(workers)) return;
  int neighbours = 0;
  int others = 0;
  for (const ExploredWorker& one : workers) {
    if (one.known_over || &one == &worker) continue;
    ++others;
    if (one.host == worker.host) ++neighbours;
  }
  if (neighbours < slots.at(worker.host) && others < max_np) {
    throw Violation("no worker leaves without a reason", fmt::format("worker {}", number));
  }
}

void JobFacts::finishes(const Membership::Finish& finish, bool no_fault,
                        const std::vector<int>& slots, int min_np, const Workers& workers) const {
  if (finish.code == 0 && !done) throw Violation("the end", "0 although nobody has finished");
  if (finish.code != 0 && no_fault) {
    throw Violation("the end", fmt::format("code {} without a fault", finish.code));
  }
  if (finish.code != 0 && done && !lost_process) {
    throw Violation("the end", fmt::format("code {} after the program's end", finish.code));
  }
  if (done || finish.code == 0) return;
  const bool over = std::all_of(workers.begin(), workers.end(),
                                [](const ExploredWorker& one) { return one.known_over; });
  if (finish.code != Membership::kExitRetry) {
    if (form.generation > 0 || !over) {
      throw Violation("the end", fmt::format("code {}", finish.code));
    }
  } else if (finish.why.starts_with("no worker is left")) {
    check_state_is_lost(workers);
  } else if (finish.why.find(" of at least ") != std::string::npos) {
    check_too_few(slots, min_np, workers);
  } else if (!finish.why.starts_with("no generation has started") || !had_paused(workers)) {
    throw Violation("the end", finish.why);
  }
}

void JobFacts::check_state_is_lost(const Workers& workers) const {
  for (const ExploredWorker& one : workers) {
    if (one.phase != ExploredWorker::Phase::waiting || one.told_to_leave) continue;
    if (one.has_whole_state()) throw Violation("the end", "a worker has the state");
    if (may_begin_anew(one)) throw Violation("the end", "a worker may begin anew");
  }
}

/// The workers that wait, the oldest for the slots of each host, are no generation.
void JobFacts::check_too_few(const std::vector<int>& slots, int min_np,
                             const Workers& workers) const {
  std::map<std::size_t, int> used;
  int fit = 0;
  bool may_lead = form.generation == 0;
  for (const ExploredWorker& one : workers) {
    const bool waits = one.phase == ExploredWorker::Phase::waiting && one.to_hvdrun.empty() &&
                       one.heard >= one.assigned && !one.told_to_leave && !one.known_over;
    if (!waits || left_hosts.contains(one.host) || used[one.host] == slots.at(one.host)) continue;
    ++used[one.host];
    ++fit;
    may_lead = may_lead || one.has_had_state || may_begin_anew(one);
  }
  if (fit >= min_np && may_lead) {
    throw Violation("the end", fmt::format("{} workers wait, which are enough", fit));
  }
}

/// A member of the last generation was stopped, which tells why it has not started.
bool JobFacts::had_paused(const Workers& workers) const {
  return std::any_of(form.workers.begin(), form.workers.end(), [&workers](int member) {
    return workers.at(static_cast<std::size_t>(member)).was_paused;
  });
}

bool JobFacts::may_begin_anew(const ExploredWorker& worker) const {
  return form.generation == 1 && worker.assigned > 0 && nobody_has_trained();
}

/// A step needs all members, so nobody has trained while a member of the first generation has not
/// synchronized it.
bool JobFacts::nobody_has_trained() const {
  const auto first = started.find(1);
  return first == started.end() || static_cast<std::size_t>(first->second) < members_of_first;
}

// ---- what workers do

void JobFacts::gathers(const ExploredWorker& worker) {
  Reached& reached = best[worker.generation];
  if (worker.standing.is_sound()) {
    reached = std::max(reached, Reached(worker.model.steps, worker.standing.iterations));
  }
  if (worker.standing.commits > 0) {
    reached = std::max(reached, Reached(worker.commit_model.steps, 0));
  }
}

/// With mirrors two ranks may be lost together, so that nobody has all shards.
void JobFacts::no_source(const ExploredWorker& worker, bool mirrored) const {
  if (const int steps = best.at(worker.generation).first; steps > 0 && !mirrored) {
    throw Violation("no step is lost", fmt::format("there was a state after {}", steps));
  }
  if (worker.generation == 2 && nobody_has_trained()) {
    throw Violation("losing rank 0 is no special case", "nobody has trained");
  }
}

void JobFacts::agree(std::uint32_t generation, int step, std::uint64_t digest) {
  const auto [known, is_first] = digests.emplace(std::pair(generation, step), digest);
  if (!is_first && known->second != digest) {
    throw Violation("bit-identical ranks", fmt::format("generation {}, step {}", generation, step));
  }
}

void JobFacts::synchronized(const ExploredWorker& worker) {
  const sim::elastic::Model& model = worker.model;
  ++started[worker.generation];
  if (model.damaged) throw Violation("whole states", "a worker goes on with a damaged one");
  agree(worker.generation, -1, model.digest);
  if (model.steps > 0 && !completed.contains(model.digest)) {
    throw Violation("whole states", "a worker has that of no step");
  }
  const auto [steps, iterations] = best[worker.generation];
  if (Reached(model.steps, worker.standing.iterations) < Reached(steps, iterations)) {
    throw Violation(
        "no step is lost",
        fmt::format("rank {} goes on after {} ({}), another rank had {} ({})", worker.rank,
                    model.steps, worker.standing.iterations, steps, iterations));
  }
  // Those who are left lack at most the step that was under way.
  if (furthest - model.steps > 1) {
    throw Violation("no step is lost",
                    fmt::format("{} of {} steps", furthest - model.steps, furthest));
  }
}

void JobFacts::step_completed(const ExploredWorker& worker) {
  if (worker.generation < last_generation) {
    throw Violation("one generation", fmt::format("a step in {} after one in {}", worker.generation,
                                                  last_generation));
  }
  last_generation = worker.generation;
  furthest = std::max(furthest, worker.model.steps);
  completed.insert(worker.model.digest);
  agree(worker.generation, worker.step, worker.model.digest);
}

void JobFacts::check_every_sample_was_used(const ExploredWorker& worker, int samples) const {
  const sim::elastic::Model& model = worker.model;
  for (int i = 0; i < samples; ++i) {
    const auto sample = static_cast<std::size_t>(i);
    if (model.used.at(sample) == model.allowed.at(sample)) continue;
    throw Violation("every sample once",
                    fmt::format("rank {}: sample {} {} times for {}", worker.rank, i,
                                model.used.at(sample), model.allowed.at(sample)));
  }
}

void JobFacts::finished(const ExploredWorker& worker, int samples) {
  check_every_sample_was_used(worker, samples);
  done = true;
}

// ---- the state

void JobFacts::forget_before(std::uint32_t generation) {
  digests.erase(digests.begin(), digests.lower_bound({generation, -1}));
  best.erase(best.begin(), best.lower_bound(generation));
  std::erase_if(started, [&](const auto& one) {
    return one.first != 1 && one.first < generation && one.first != form.generation;
  });
  // Of the first generation only the answer of nobody_has_trained() is needed now. States that
  // differ in the count alone become equal.
  constexpr int kAll = 99;
  if (generation > 1 && started.contains(1)) started[1] = nobody_has_trained() ? 1 : kAll;
}

void JobFacts::add_to(StateHasher& hasher) const {
  hasher.word(form.generation);
  for (const int worker : form.workers) hasher.word(static_cast<std::uint64_t>(worker));
  for (const auto& [key, digest] : digests) {
    hasher.word((std::uint64_t{key.first} << 32) + static_cast<std::uint32_t>(key.second));
    hasher.word(digest);
  }
  for (const auto& [generation, count] : started) {
    hasher.word((std::uint64_t{generation} << 32) + static_cast<std::uint32_t>(count));
  }
  for (const auto& [generation, reached] : best) {
    hasher.word((std::uint64_t{generation} << 32) + static_cast<std::uint32_t>(reached.first));
    hasher.word(static_cast<std::uint64_t>(reached.second));
  }
  hasher.word(members_of_first);
  hasher.word(completed.size());
  for (const std::uint64_t digest : completed) hasher.word(digest);
  hasher.word(asking_hosts.size());
  for (const auto& [host, member_asks] : asking_hosts)
    hasher.word(2 * host + (member_asks ? 1 : 0));
  hasher.word(left_hosts.size());
  for (const std::size_t host : left_hosts) hasher.word(host);
  hasher.word((std::uint64_t{last_generation} << 32) + static_cast<std::uint32_t>(furthest));
  hasher.word((done ? 1U : 0U) + (lost_process ? 2U : 0U));
}

}  // namespace hvd::explore
