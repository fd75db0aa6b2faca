// hvdrun and its agents: the same calls of Membership in the same order as `ElasticJob`, and as in
// tests/sim/elastic/driver.cpp.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "explored_job.hpp"
#include "worker_steps.hpp"

namespace hvd::explore {

using detail::Membership;

// ---- events

void ExploredJob::list(const std::vector<int>& slots) {
  slots_ = slots;
  std::erase_if(facts_.left_hosts, [&slots](std::size_t host) { return slots[host] == 0; });
  say(-1, "slots: {}", fmt::join(slots, " "));
  obey(membership_.on_hosts(slots, now_));
}

void ExploredJob::hear(int worker) {
  ExploredWorker& sender = at(worker);
  const detail::Waits waits = detail::decode_waits(*sender.to_hvdrun.front().bytes);
  sender.to_hvdrun.erase(sender.to_hvdrun.begin());
  say_message(worker, -1, fmt::format("Waits after {}", waits.generation));
  hear(worker, waits);
}

void ExploredJob::hear(int worker, const detail::Waits& waits) {
  facts_.hears(worker, waits, now_, workers_);
  obey(membership_.on_waits(worker, waits, now_));
}

/// The report may overtake a message that the agent has not read yet.
void ExploredJob::hear_end(int worker) {
  const int code = *std::exchange(at(worker).report, std::nullopt);
  say_message(worker, -1, fmt::format("has exited with {}", code));
  at(worker).known_over = true;
  at(worker).kill = false;
  obey(membership_.on_exit(worker, code, now_));
}

/// Nothing that was on its way through the agent arrives.
void ExploredJob::lose_agent(std::size_t host) {
  say(-1, "LOSES THE AGENT of host {}", host);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const int number = static_cast<int>(i);
    if (at(number).host != host || at(number).known_over) continue;
    WorkerSteps(*this, number).die(137);
    at(number).report.reset();
    at(number).kill = false;
    at(number).to_hvdrun.clear();
    at(number).known_over = true;
    facts_.lost_process = true;  // hvdrun may not hear that it has finished
  }
  const bool was_to_serve = to_serve_ && at(to_serve_->form.workers.front()).host == host;
  const std::vector<int> waiting = was_to_serve ? to_serve_->form.workers : std::vector<int>();
  const std::uint32_t generation = membership_.generation();
  if (was_to_serve) to_serve_.reset();
  obey(membership_.on_host_lost(host, now_));
  for (const int worker : waiting) {
    if (end_) return;
    hear(worker, {.generation = generation, .start_failed = true});
  }
}

void ExploredJob::serve() {
  const ToServe served = *std::exchange(to_serve_, std::nullopt);
  const auto& [generation, workers] = served.form;
  say(-1, "serves generation {}", generation);
  generations_.emplace(generation, ExploredGeneration(generation, workers));
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    tell(workers[rank],
         detail::Assignment{.generation = generation,
                            .variables = {fmt::format("HVD_RANK={}", rank),
                                          fmt::format("HVD_SIZE={}", workers.size())}});
  }
  for (const Membership::Tell& later : served.later) tell(later.worker, later.order);
}

// ---- orders

void ExploredJob::obey(const Membership::Orders& orders) {
  for (const Membership::Order& order : orders) {
    std::visit([this](const auto& one) { carry_out(one); }, order);
  }
}

void ExploredJob::carry_out(const Membership::Start& order) {
  say(-1, "starts worker {} on host {}", order.worker, order.host);
  ExploredWorker& worker = workers_.emplace_back();
  worker.host = order.host;
  // Every program begins with other parameters.
  worker.model.digest = splitmix64(workers_.size());
  worker.model.begin_epoch(0, samples_);
}

void ExploredJob::carry_out(const Membership::Form& order) {
  say(-1, "forms generation {}: {}", order.generation, fmt::join(order.workers, " "));
  facts_.forms(order, options_, workers_);
  to_serve_ = ToServe{.form = order};
}

void ExploredJob::carry_out(const Membership::Tell& order) {
  const bool leaves = std::holds_alternative<detail::Leave>(order.order);
  if (leaves) facts_.tells_to_leave(order.worker, slots_, options_.max_np, workers_);
  say(-1, "tells {} to {}", order.worker, leaves ? "leave" : "change");
  if (to_serve_ && std::find(to_serve_->form.workers.begin(), to_serve_->form.workers.end(),
                             order.worker) != to_serve_->form.workers.end()) {
    to_serve_->later.push_back(order);
  } else {
    tell(order.worker, order.order);
  }
}

void ExploredJob::carry_out(const Membership::Kill& order) {
  say(-1, "kills {}: {}", order.worker, order.why);
  facts_.kills(at(order.worker), order.worker, now_);
  at(order.worker).kill = at(order.worker).alive();
}

void ExploredJob::carry_out(const Membership::Finish& order) {
  say(-1, "finishes with {} {}", order.code, order.why);
  facts_.finishes(order, !had_fault_, slots_, options_.min_np, workers_);
  end_ = order;
}

void ExploredJob::tell(int worker, const detail::ElasticOrder& order) {
  if (at(worker).alive()) at(worker).to_worker.emplace_back(encode(order));
}

}  // namespace hvd::explore
