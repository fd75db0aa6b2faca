#include "status/status_table.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/all_ranks.hpp>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

/// A wait of less than this is not shown.
constexpr milliseconds kWorthMentioning{500};
/// A rank that has not answered for this long is listed first.
constexpr milliseconds kSilent{3'000};

/// The greatest width of a column of texts. Longer texts are cut.
constexpr std::size_t kMostWidth = 16;
/// The number of changes that are kept.
constexpr std::size_t kMostChanges = 20;
constexpr std::string_view kBoundTo = "bound to";

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double steps_per_second(const RankReport& report) {
  const double step = seconds(report.step);
  return step > 0 ? 1.0 / step : 0.0;
}

double exposed_percent(const RankReport& report) {
  const double step = seconds(report.step);
  return step > 0 ? 100.0 * seconds(report.exposed) / step : 0.0;
}

bool has_pending(const RankReport& report, const RankReport::Pending& pending) {
  return std::any_of(report.oldest.begin(), report.oldest.end(), [&](const auto& other) {
    return other.name == pending.name && other.process_set == pending.process_set;
  });
}

std::size_t width_of_hosts(const Plan& plan) {
  constexpr std::size_t kLeast = 4;  // "host"
  std::size_t width = kLeast;
  for (const HostSpec& host : plan.hosts) width = std::max(width, host.name.size());
  return std::min(width, kMostWidth);
}

}  // namespace

StatusTable::StatusTable(const Plan& plan, std::string job_id, Time now)
    : plan_(&plan),
      job_id_(std::move(job_id)),
      began_(now),
      ranks_(plan.ranks.size()),
      host_width_(width_of_hosts(plan)) {}

void StatusTable::regroup(const Plan& plan) {
  plan_ = &plan;
  ranks_.assign(plan.ranks.size(), {});
  host_width_ = width_of_hosts(plan);
}

void StatusTable::remember(const std::string& change, Time now) {
  changes_.push_back(fmt::format("at {:.1f} s: {}", seconds(now - began_), change));
  if (changes_.size() > kMostChanges) changes_.pop_front();
}

void StatusTable::started(int rank, int pid, std::string cpus) {
  Rank& state = ranks_.at(static_cast<std::size_t>(rank));
  state.pid = pid;
  if (!cpus.empty()) {
    cpus_width_ = std::clamp(cpus.size(), std::max(cpus_width_, kBoundTo.size()), kMostWidth);
  }
  state.cpus = std::move(cpus);
  state.running = true;
}

void StatusTable::ended(int rank) {
  Rank& state = ranks_.at(static_cast<std::size_t>(rank));
  state.running = false;
  state.over = true;
}

void StatusTable::used(const RankUsage& usage, Time now) {
  if (static_cast<std::size_t>(usage.rank) >= ranks_.size()) return;
  Rank& state = ranks_[static_cast<std::size_t>(usage.rank)];
  const double passed = seconds(now - (state.usage ? state.used : began_));
  const auto before = state.usage ? state.usage->cpu : milliseconds{0};
  if (passed > 0) state.cores = std::max(0.0, seconds(usage.cpu - before) / passed);
  state.usage = usage;
  state.used = now;
  gpus_ = gpus_ || usage.gpu_memory || usage.gpu_load;
}

void StatusTable::said(const RankAnswer& frame, Time now) {
  if (static_cast<std::size_t>(frame.rank) >= ranks_.size()) return;
  Rank& state = ranks_[static_cast<std::size_t>(frame.rank)];
  state.heard = now;
  try {
    RankReport report = decode_rank_report(frame.bytes);
    if (!state.report || report.steps != state.report->steps) state.stepped = now;
    state.report = std::move(report);
    state.garbled = false;
  } catch (const Error&) {
    state.garbled = true;
  }
}

bool StatusTable::all_heard_since(Time time) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [time](const Rank& rank) {
    return !rank.running || (rank.heard >= time && rank.used >= time);
  });
}

bool StatusTable::odd(const Rank& rank, Time now) const {
  return rank.running && rank.report && now - rank.heard > kSilent;
}

std::string StatusTable::heading() const {
  return fmt::format("{:>5} {:<{}} {:>7}{}  {:>5} {:>9}{} {:>9} {:>8} {:>8} {:>8}", "rank", "host",
                     host_width_, "pid", bound_to(kBoundTo), "cpu", "memory",
                     gpus_ ? fmt::format(" {:>4} {:>9}", "gpu", "gpu mem") : "", "steps", "steps/s",
                     "exposed", "heard");
}

/// Returns the text as a cell of the column of CPUs, which exists if some rank is bound.
std::string StatusTable::bound_to(std::string_view text) const {
  return cpus_width_ == 0 ? "" : fmt::format(" {:>{}.{}}", text, cpus_width_, cpus_width_);
}

std::string StatusTable::line(int rank, Time now) const {
  const Rank& state = ranks_[static_cast<std::size_t>(rank)];
  const Placement& at = plan_->ranks[static_cast<std::size_t>(rank)];
  std::string text =
      fmt::format("{:>5} {:<{}.{}} {:>7}", rank, plan_->hosts[at.host].name, host_width_,
                  host_width_, state.pid > 0 ? fmt::format("{}", state.pid) : "-");
  text += bound_to(state.cpus.empty() ? "-" : std::string_view(state.cpus));
  if (state.over) return text + "  over";
  if (!state.running) return text + "  not started";
  const std::string cpu = state.usage ? fmt::format("{:.0f}%", 100 * state.cores) : "-";
  const std::string memory = state.usage ? in_units(state.usage->memory) : "-";
  text += fmt::format("  {:>5} {:>9}", cpu, memory);
  if (gpus_) {
    const RankUsage usage = state.usage.value_or(RankUsage{});
    text += fmt::format(" {:>4} {:>9}", usage.gpu_load ? fmt::format("{}%", *usage.gpu_load) : "-",
                        usage.gpu_memory ? in_units(*usage.gpu_memory) : "-");
  }
  if (state.garbled) return text + "  says what is no report";
  if (!state.report) return text + "  has not joined the job";
  const RankReport& report = *state.report;
  text +=
      fmt::format(" {:>9} {:>8.2f} {:>7.0f}% {:>6.1f} s", report.steps, steps_per_second(report),
                  exposed_percent(report), seconds(now - state.heard));
  if (!report.oldest.empty()) {
    const auto& oldest = report.oldest.front();
    const auto age = oldest.age + std::chrono::duration_cast<milliseconds>(now - state.heard);
    if (age >= kWorthMentioning) {
      text += fmt::format("  {} {} {:.1f} s", to_string(oldest.kind), in_quotes(oldest.name),
                          seconds(age));
    }
  }
  return text;
}

std::vector<std::string> StatusTable::lines(Time now, std::size_t most) const {
  std::vector<int> order = all_ranks(static_cast<int>(ranks_.size()));
  const bool all = order.size() <= most;
  if (!all) {
    std::stable_partition(order.begin(), order.end(), [&](int rank) {
      return odd(ranks_[static_cast<std::size_t>(rank)], now);
    });
    order.resize(most > 0 ? most - 1 : 0);
  }
  std::vector<std::string> text = {heading()};
  for (const int rank : order) text.push_back(line(rank, now));
  if (!all) text.push_back(fmt::format("      and {} more ranks", ranks_.size() - order.size()));
  return text;
}

/// Returns the ranks that have not submitted an operation that needs them. Whether a rank has
/// submitted it is known only while all of its pending operations fit into its report.
std::vector<int> StatusTable::missing_in(const RankReport::Pending& pending) const {
  std::vector<int> members(pending.members.begin(), pending.members.end());
  if (members.empty()) {
    if (pending.process_set != 0) return {};
    members = all_ranks(static_cast<int>(ranks_.size()));
  }
  std::vector<int> missing;
  for (const int rank : members) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size()) continue;
    const Rank& state = ranks_[static_cast<std::size_t>(rank)];
    if (!state.report || !state.running) {
      missing.push_back(rank);
    } else if (state.report->pending == state.report->oldest.size() &&
               !has_pending(*state.report, pending)) {
      missing.push_back(rank);
    }
  }
  return missing;
}

std::vector<std::string> StatusTable::waits(Time now) const {
  // Ranks whose oldest operation is the same wait for the same others.
  struct Wait {
    const RankReport::Pending* pending = nullptr;
    Clock::duration age{0};
    std::vector<int> ranks;
  };
  std::map<std::pair<std::int32_t, std::string>, Wait> waits;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& state = ranks_[rank];
    if (!state.running || !state.report || state.report->oldest.empty()) continue;
    const auto& oldest = state.report->oldest.front();
    const auto age = oldest.age + (now - state.heard);
    if (age < kWorthMentioning) continue;
    Wait& wait = waits[{oldest.process_set, oldest.name}];
    wait.pending = &oldest;
    wait.age = std::max<Clock::duration>(wait.age, age);
    wait.ranks.push_back(static_cast<int>(rank));
  }
  std::vector<std::string> text;
  for (const auto& [key, wait] : waits) {
    const auto missing = missing_in(*wait.pending);
    const std::string what = fmt::format("{} {} for {:.1f} s", to_string(wait.pending->kind),
                                         in_quotes(wait.pending->name), seconds(wait.age));
    const char* verb = wait.ranks.size() == 1 ? "s" : "";
    text.push_back(missing.empty()
                       ? fmt::format("{} work{} on {}", ranks_text(wait.ranks), verb, what)
                       : fmt::format("{} wait{} for {}: {}", ranks_text(wait.ranks), verb,
                                     ranks_text(missing), what));
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (odd(ranks_[rank], now)) {
      text.push_back(fmt::format("rank {} has not answered for {:.1f} s", rank,
                                 seconds(now - ranks_[rank].heard)));
    }
  }
  for (const Rank& rank : ranks_) {
    if (!rank.running || !rank.report || rank.report->slowest < 0) continue;
    text.push_back(
        fmt::format("rank {} is the slowest: the others wait for it for {:.1f} ms of each step",
                    rank.report->slowest, 1000 * seconds(rank.report->slowest_cost)));
    break;  // all ranks report the same
  }
  return text;
}

std::string StatusTable::summary(Time now) const {
  int joined = 0;
  std::vector<int> over;
  const RankReport* slowest = nullptr;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& state = ranks_[rank];
    if (state.over) over.push_back(static_cast<int>(rank));
    if (!state.running || !state.report) continue;
    ++joined;
    if (slowest == nullptr || steps_per_second(*state.report) < steps_per_second(*slowest)) {
      slowest = &*state.report;
    }
  }
  std::string text = fmt::format("{:.0f} s: {} of {} ranks have joined", seconds(now - began_),
                                 joined, ranks_.size());
  if (!over.empty()) text += fmt::format(", {} over", ranks_text(over));
  if (slowest != nullptr && slowest->steps > 0) {
    text += fmt::format(", {} steps, {:.2f} steps/s, {:.0f}% exposed", slowest->steps,
                        steps_per_second(*slowest), exposed_percent(*slowest));
  }
  for (const std::string& wait : waits(now)) text += fmt::format("; {}", wait);
  return text;
}

std::string StatusTable::table(Time now) const {
  std::string text = fmt::format("job {}, {} ranks, running for {:.0f} s\n", job_id_, ranks_.size(),
                                 seconds(now - began_));
  for (const std::string& one : lines(now, ranks_.size())) text += one + "\n";
  for (const std::string& one : waits(now)) text += one + "\n";
  for (const std::string& one : changes_) text += one + "\n";
  return text;
}

}  // namespace hvd::launcher
