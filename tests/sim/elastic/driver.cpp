#include "elastic/driver.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "elastic/job.hpp"

namespace hvd::sim::elastic {

auto Driver::at(std::size_t host) -> Host& {
  if (host >= hosts_.size()) hosts_.resize(host + 1);
  return hosts_[host];
}

void Driver::through_agent(std::size_t host, Nanos delay, std::function<void()> action) {
  const int incarnation = at(host).incarnation;
  job_.events.at(job_.events.now() + delay, [this, host, incarnation, action = std::move(action)] {
    const auto is_gone = [this, host, incarnation] {
      return end_ || at(host).over || at(host).silent || at(host).incarnation != incarnation;
    };
    if (is_gone()) return;
    job_.boundary();
    if (!is_gone()) action();
  });
}

// ---- events

void Driver::list(const std::vector<int>& slots) {
  slots_ = slots;
  job_.oracle.lists(slots);
  job_.trace.say(job_.events.now(), -1, "slots: {}", fmt::join(slots, " "));
  if (!end_) obey(membership_.on_hosts(slots, job_.now()));
}

void Driver::send(int worker, const Bytes& packet) {
  const std::size_t host = job_.host_of(worker);
  Nanos& last = from_worker_.at(static_cast<std::size_t>(worker));
  last = std::max(last + 1, job_.events.now() + job_.message(host));
  through_agent(host, last - job_.events.now(), [this, worker, packet] {
    const detail::Waits waits = detail::decode_waits(packet);
    job_.oracle.hears(worker, waits);
    obey(membership_.on_waits(worker, waits, job_.now()));
  });
}

/// The report may overtake a message that the agent has not read yet.
void Driver::exited(int worker, int code) {
  const std::size_t host = job_.host_of(worker);
  through_agent(host, job_.message(host), [this, worker, code] {
    job_.trace.say(job_.events.now(), -1, "worker {} has exited {}", worker, code);
    job_.oracle.knows_end_of(worker, code);
    obey(membership_.on_exit(worker, code, job_.now()));
  });
}

void Driver::lose_later(std::size_t host) {
  if (std::exchange(at(host).silent, true)) return;
  job_.events.at(job_.events.now() + 10 * kSecond, [this, host, agent = at(host).incarnation] {
    job_.boundary();
    if (at(host).incarnation == agent) lose(host);
  });
}

void Driver::lose(std::size_t index) {
  Host& host = at(index);
  if (end_ || host.over) return;
  host.over = true;
  job_.trace.say(job_.events.now(), -1, "host {} is lost", index);
  const bool was_to_serve = forming_ && forming_->host == index;
  const std::vector<int> waiting = was_to_serve ? forming_->form.workers : std::vector<int>();
  const std::uint32_t generation = membership_.generation();
  if (was_to_serve) forming_.reset();
  for (const auto& one : job_.workers) {
    if (one->host() == index) job_.oracle.knows_end_of(one->number(), std::nullopt);
  }
  obey(membership_.on_host_lost(index, job_.now()));
  for (const int worker : waiting) {
    if (end_) return;
    const detail::Waits waits{.generation = generation, .start_failed = true};
    job_.oracle.hears(worker, waits);
    obey(membership_.on_waits(worker, waits, job_.now()));
  }
}

void Driver::served(std::uint32_t generation) {
  if (!forming_ || forming_->form.generation != generation) return;
  const Forming forming = *std::exchange(forming_, std::nullopt);
  const std::vector<int>& workers = forming.form.workers;
  job_.add_generation(generation, workers);
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    tell(workers[rank],
         detail::Assignment{.generation = generation,
                            .variables = {fmt::format("HVD_RANK={}", rank),
                                          fmt::format("HVD_SIZE={}", workers.size())}});
  }
  for (const Membership::Tell& later : forming.later) tell(later.worker, later.order);
}

// ---- orders

void Driver::obey(const Membership::Orders& orders) {
  for (const Membership::Order& order : orders) {
    std::visit([this](const auto& one) { carry_out(one); }, order);
  }
  const std::uint64_t timer = ++timer_;
  const auto due = membership_.wake_up();
  if (!due || end_) return;
  job_.events.at(job_.nanos(*due), [this, timer] {
    if (timer == timer_ && !end_) obey(membership_.on_time(job_.now()));
  });
}

void Driver::carry_out(const Membership::Start& order) {
  Host& host = at(order.host);
  const bool is_new = host.over;
  if (is_new) {
    host.over = false;
    host.silent = false;
    ++host.incarnation;
    if (job_.is_down(order.host)) {
      through_agent(order.host, job_.random.spread(500 * kMilli, 10 * kSecond),
                    [this, index = order.host] { lose(index); });
    }
  }
  job_.trace.say(job_.events.now(), -1, "starts worker {} on host {}", order.worker, order.host);
  from_worker_.push_back(0);
  to_worker_.push_back(0);
  job_.add_worker(order.worker, order.host);
  job_.oracle.starts(order.worker);
  if (job_.is_down(order.host)) return;
  through_agent(order.host, job_.message(order.host) + (is_new ? 50 * kMilli : 0),
                [this, worker = order.worker] { job_.worker(worker).start(); });
}

void Driver::carry_out(const Membership::Form& order) {
  job_.trace.say(job_.events.now(), -1, "forms generation {}: {}", order.generation,
                 fmt::join(order.workers, " "));
  job_.oracle.forms(order);
  const std::size_t host = job_.host_of(order.workers.front());
  forming_ = Forming{.form = order, .host = host};
  through_agent(host, 2 * job_.message(host),
                [this, generation = order.generation] { served(generation); });
  job_.forming(order.workers);
}

void Driver::carry_out(const Membership::Tell& order) {
  if (std::holds_alternative<detail::Leave>(order.order)) job_.oracle.tells_to_leave(order.worker);
  job_.trace.say(job_.events.now(), -1, "tells {} to {}", order.worker,
                 std::holds_alternative<detail::Leave>(order.order) ? "leave" : "change");
  if (forming_ && std::find(forming_->form.workers.begin(), forming_->form.workers.end(),
                            order.worker) != forming_->form.workers.end()) {
    forming_->later.push_back(order);
  } else {
    tell(order.worker, order.order);
  }
}

void Driver::carry_out(const Membership::Kill& order) {
  job_.trace.say(job_.events.now(), -1, "kills {}: {}", order.worker, order.why);
  job_.oracle.kills(order.worker);
  const std::size_t host = job_.host_of(order.worker);
  through_agent(host, job_.message(host),
                [this, worker = order.worker] { job_.worker(worker).die(137); });
}

void Driver::carry_out(const Membership::Finish& order) {
  job_.trace.say(job_.events.now(), -1, "finishes with {} {}", order.code, order.why);
  job_.oracle.finishes(order);
  end_ = order;
}

void Driver::tell(int worker, const detail::ElasticOrder& order) {
  const std::size_t host = job_.host_of(worker);
  Nanos& last = to_worker_.at(static_cast<std::size_t>(worker));
  last = std::max(last + 1, job_.events.now() + job_.message(host));
  through_agent(host, last - job_.events.now(), [this, worker, packet = encode(order)] {
    if (job_.is_alive(worker)) job_.worker(worker).on_order(packet);
  });
}

}  // namespace hvd::sim::elastic
