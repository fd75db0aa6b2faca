#include "transport/agent_session.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>

#include "base/signals.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

/// Says why a frame is not accepted. It is thrown and caught in this file only.
struct Violation {
  std::string what;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Violation{fmt::format(format, std::forward<Args>(args)...)};
}

/// The names of the kinds of frames, in the order of `Frame`.
constexpr std::array<const char*, std::variant_size_v<Frame>> kNames = {
    "Prepare",    "Launch",         "Forward",   "End",        "Credit",
    "Prepared",   "Refused",        "Started",   "Output",     "Exited",
    "Gone",       "Done",           "Beat",      "Suspend",    "Join",
    "Finished",   "StatusRequest",  "RankUsage", "RankAnswer", "StartWorker",
    "KillWorker", "ElasticMessage", "Serve",     "Served"};

/// Refuses an address of a store, or a name of its host, that ranks could not use. Ranks get both
/// in variables.
void check_store(const std::string& store, const std::string& host, RendezvousReach reach) {
  const bool over_network = reach == RendezvousReach::network;
  const auto is_good = [&] {
    try {
      const auto wanted = over_network ? Address::Kind::tcp : Address::Kind::unix_socket;
      return Address::parse(store).kind == wanted;
    } catch (const Error&) {
      return false;
    }
  };
  if (!is_good()) {
    refuse("{} is no address of a store {}", in_quotes(store),
           over_network ? "that other machines reach" : "for one machine");
  }
  if (!is_host_name(host) && !is_ipv6_address(host)) refuse("{} is no host", in_quotes(host));
}

}  // namespace

AgentSession::AgentSession(const Plan& plan, std::size_t host, bool forwards_signals)
    : elastic_(false), serves_store_(host == 0), forwards_signals_(forwards_signals) {
  for (const Placement& at : plan.ranks) {
    if (at.host == host) ranks_.push_back({.rank = at.rank});
  }
}

std::optional<std::string> AgentSession::on_frame(const Frame& frame) {
  try {
    std::visit([this](const auto& fields) { check(fields); }, frame);
    return std::nullopt;
  } catch (const Violation& violation) {
    broken_ = true;
    return fmt::format("{}: {}", kNames.at(frame.index()), violation.what);
  }
}

void AgentSession::on_sent(const Frame& frame) {
  if (const auto* prepare = std::get_if<Prepare>(&frame)) reach_ = prepare->rendezvous;
  launched_ = launched_ || std::holds_alternative<Launch>(frame);
  ending_ = ending_ || std::holds_alternative<End>(frame);
  if (const auto* start = std::get_if<StartWorker>(&frame)) ranks_.push_back({.rank = start->rank});
  if (const auto* serve = std::get_if<Serve>(&frame)) asked_to_serve_ = *serve;
}

bool AgentSession::all_started() const noexcept {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.state != State::waiting; });
}

std::vector<int> AgentSession::running_ranks() const {
  std::vector<int> running;
  for (const Rank& rank : ranks_) {
    if (rank.state == State::running) running.push_back(rank.rank);
  }
  return running;
}

std::uint32_t AgentSession::take_debt() noexcept { return std::exchange(debt_, 0U); }

AgentSession::Rank& AgentSession::find(int rank) {
  const auto it = std::find_if(ranks_.begin(), ranks_.end(),
                               [rank](const Rank& own) { return own.rank == rank; });
  if (it != ranks_.end()) return *it;
  std::vector<int> own;
  for (const Rank& one : ranks_) own.push_back(one.rank);
  refuse("rank {} does not run there; the ranks of this host are {}", rank, rank_ranges(own));
}

AgentSession::Rank& AgentSession::started(int rank) {
  Rank& own = find(rank);
  if (own.state == State::waiting) refuse("rank {} was not started", rank);
  return own;
}

void AgentSession::check(const Prepared& frame) {
  if (prepared_ || over_) refuse("it was sent before");
  if (!frame.store.empty()) {
    if (!serves_store_) refuse("this host does not serve the store");
    check_store(frame.store, frame.master_host, reach_);
  }
  prepared_ = true;
}

void AgentSession::check(const Refused&) { over_ = true; }

void AgentSession::check(const Started& frame) {
  Rank& rank = find(frame.rank);
  if (!launched_ || over_) refuse("rank {} was not to be started", frame.rank);
  if (rank.state != State::waiting) refuse("rank {} was started before", frame.rank);
  if (frame.pid <= 0) refuse("rank {} cannot have pid {}", frame.rank, frame.pid);
  rank.state = State::running;
}

void AgentSession::check(const Output& frame) {
  (void)started(frame.rank);
  if (over_) refuse("rank {} wrote something after Done", frame.rank);
  if (frame.bytes.size() > kOutputWindow - debt_) refuse("more bytes than were credited");
  debt_ += static_cast<std::uint32_t>(frame.bytes.size());
}

/// A worker of an elastic job that could not be started has only an end.
void AgentSession::check(const Exited& frame) {
  Rank& rank = elastic_ ? find(frame.rank) : started(frame.rank);
  if (rank.state == State::over || over_) refuse("rank {} was over before", frame.rank);
  if (!WIFEXITED(frame.status) && !WIFSIGNALED(frame.status)) {
    refuse("rank {} cannot have ended with status {:#x}", frame.rank, frame.status);
  }
  rank.state = State::over;
}

void AgentSession::check(const RankUsage& frame) { (void)started(frame.rank); }

void AgentSession::check(const RankAnswer& frame) { (void)started(frame.rank); }

void AgentSession::check(const ElasticMessage& frame) {
  const Rank& rank = started(frame.rank);
  if (!elastic_) refuse("the job is not elastic");
  if (rank.state == State::over || over_) refuse("worker {} was over before", frame.rank);
}

void AgentSession::check(const Served& frame) {
  const Serve asked = std::exchange(asked_to_serve_, Serve{});
  if (asked.generation == 0 || asked.generation != frame.generation || over_) {
    refuse("it was not to serve the store of generation {}", frame.generation);
  }
  check_store(frame.store, frame.master_host, asked.reach);
}

void AgentSession::check(const Gone&) {
  if (elastic_ && !ending_) refuse("the job has not ended");
  for (const Rank& rank : ranks_) {
    const bool never_ran = rank.state == State::waiting && ending_;
    if (rank.state != State::over && !never_ran) refuse("rank {} is not over", rank.rank);
  }
  gone_ = true;
}

void AgentSession::check(const Done&) {
  if (!gone_) refuse("there was no Gone before");
  over_ = true;
}

void AgentSession::check(const Forward& frame) {
  if (!forwards_signals_) refuse("this agent has no user who sends signals");
  if (!is_forwarded(frame.signal)) {
    refuse("{} is not forwarded between nodes", signal_name(frame.signal));
  }
}

template <typename T>
void AgentSession::check(const T&) {
  refuse("only hvdrun sends this");
}

}  // namespace hvd::launcher
