// What the threads of a rank do: its user, its loop and its executor.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/all_ranks.hpp>

#include "explored_world.hpp"
#include "state_reader.hpp"
#include "trace.hpp"

namespace hvd::explore {

using namespace detail;  // NOLINT: a test
using sim::Violation;
using Phase = RankFacts::Phase;
using Executor = RankFacts::Executor;
using Ending = RankFacts::Ending;

namespace {

std::uint8_t outcome_of(std::optional<Errc> error) {
  if (!error) return RankFacts::kSucceeded;
  return static_cast<std::uint8_t>(RankFacts::kFirstError + static_cast<std::uint8_t>(*error));
}

/// A tensor's input is one more than the index of its step in the program.
std::size_t step_of(const PendingTensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.submission.input) - 1;  // NOLINT
}

}  // namespace

// ---------------------------------------------------------------------------------------------
// The user's thread.

void ExploredWorld::user_acts(ExploredRank& rank) {
  const auto& program = scenario_->programs[index(rank.rank)];
  if (rank.step == program.size()) {
    say(rank.rank, "shuts down");
    rank.finished = true;
    rank.closed = true;
    rank.table->close(std::make_exception_ptr(Error(Errc::shut_down, "")));
    rank.tasks.push_back({LoopTask::Kind::shutdown, -1});
    return;
  }
  const std::size_t index_of_step = rank.step++;
  const ScenarioStep& step = program[index_of_step];
  if (step.kind == ScenarioStep::Kind::wait_all) {
    ++rank.observations;
    return;
  }
  say(rank.rank, "submits {} {}", hvd::to_string(step.request.kind), step.request.name);
  const auto tensor = std::make_shared<PendingTensor>();
  tensor->submission.request = step.request;
  tensor->submission.input = reinterpret_cast<const void*>(index_of_step + 1);  // NOLINT
  rank.outcomes[index_of_step] = RankFacts::kPending;
  const TensorTable::Next next = rank.table->add(std::array{tensor}, rank.observations);
  if (next.announce) rank.tasks.push_back({LoopTask::Kind::announce, -1});
  if (next.thaw) rank.tasks.push_back({LoopTask::Kind::thaw, -1});
}

void ExploredWorld::resolve(ExploredRank& rank, PendingTensor& tensor, std::optional<Errc> error) {
  if (tensor.stand_in) return;
  rank.table->remove(tensor);
  const std::size_t step = step_of(tensor);
  const std::string name = fmt::format("rank {}, '{}'", rank.rank, tensor.submission.request.name);
  if (rank.outcomes[step] != RankFacts::kPending) throw Violation("resolved once", name);
  rank.outcomes[step] = outcome_of(error);
  say(rank.rank, "{} {}", tensor.submission.request.name,
      error ? fmt::format("fails: {}", hvd::to_string(*error)) : "completes");
  if (rank.ending == Ending::failed) return;  // any error is right
  const int meaning = scenario_->programs[index(rank.rank)][step].meaning;
  const std::optional<Errc> right = scenario_->meanings[static_cast<std::size_t>(meaning)].error;
  if (error == right || (error == Errc::shut_down && scenario_->early_shutdown)) return;
  throw Violation("the right outcome",
                  fmt::format("{}: {}", name, error ? hvd::to_string(*error) : "a result"));
}

// ---------------------------------------------------------------------------------------------
// The loop's thread.

void ExploredWorld::run_task(ExploredRank& rank) {
  const LoopTask task = rank.tasks.front();
  rank.tasks.erase(rank.tasks.begin());
  switch (task.kind) {
    case LoopTask::Kind::announce:
      rank.protocol.submitted(rank.table->take_unannounced(), now_);
      break;
    case LoopTask::Kind::thaw:
      rank.protocol.thaw_wanted(now_);
      break;
    case LoopTask::Kind::batch_done:
      rank.protocol.batch_done(now_);
      break;
    case LoopTask::Kind::collective_failed:
      rank.protocol.collective_failed(Errc::peer_lost, task.culprit, "reset", now_);
      break;
    case LoopTask::Kind::shutdown:
      if (rank.ending != Ending::none) break;
      rank.protocol.submitted(rank.table->take_unannounced(), now_);
      rank.protocol.shutdown(now_);
      break;
  }
}

void ExploredWorld::send(int from, const std::vector<int>& to, const Message& message) {
  const bool heartbeat = std::holds_alternative<Heartbeat>(message);
  const auto bytes = std::make_shared<const Bytes>(encode(message));
  StateHasher hasher;
  for (const std::byte byte : *bytes) hasher.word(static_cast<std::uint64_t>(byte));
  for (const int rank : to) {
    Channel& out = channel(from, rank);
    if (out.closed || of(rank).dead || at(rank).ending != Ending::none) continue;
    const bool waits = !running(rank) || !connected(from, rank);
    if (heartbeat && !waits) {
      heartbeats_.emplace_back(from, rank);
      continue;
    }
    // Two heartbeats that wait together tell no more than one.
    if (heartbeat && !out.items.empty() && out.items.back().heartbeat) continue;
    if (!heartbeat) say(from, "sends {} to {}", to_string(message), rank);
    out.items.push_back({bytes, hasher.hash(), heartbeat});
  }
}

void ExploredWorld::deliver(int from, int to) {
  Channel& in = channel(from, to);
  const Item item = in.items.front();
  in.items.erase(in.items.begin());
  if (chart_) {
    chart_->push_back({to, from, item.bytes ? to_string(decode_message(*item.bytes)) : "(end)"});
  }
  if (item.bytes) {
    edit(to).protocol.received({from}, *item.bytes, now_);
  } else {
    edit(to).protocol.lost(from, "the stream ended", now_);
  }
}

void ExploredWorld::failed(ExploredRank& rank, const Abort& abort) {
  say(rank.rank, "FAILS: {} of rank {} ({})", hvd::to_string(abort.code), abort.fault.rank,
      abort.fault.cause);
  rank.ending = Ending::failed;
  rank.closed = true;
  rank.code = abort.code;
  rank.culprit = abort.fault.rank;
  rank.replaying = false;
  rank.tasks.clear();  // the protocol is over
  of_[index(rank.rank)].gone = true;
  stop_executor(rank);
  for (int peer = 0; peer < scenario_->ranks; ++peer) channel(peer, rank.rank).items.clear();
  if (faulty(rank.rank)) return;  // a rank that was stopped or cut off may blame others
  const int culprit = abort.fault.rank;
  if (culprit < 0 && fault_is_hidden()) return;
  if (abort.code == Errc::peer_lost && culprit >= 0 && faulty(culprit)) return;
  throw Violation(
      "nobody is blamed without a reason",
      fmt::format("rank {} blames rank {}: {}", rank.rank, abort.fault.rank, abort.fault.cause));
}

// ---------------------------------------------------------------------------------------------
// The executor's thread, the ready fence and the data plane.

std::vector<int> ExploredWorld::members(const LocalBatch& batch) const {
  if (!batch.members.empty()) return batch.members;
  if (batch.process_set == 0) return all_ranks(scenario_->ranks);
  return {scenario_->ranks - 2, scenario_->ranks - 1};
}

void ExploredWorld::take(ExploredRank& rank) {
  if (rank.queue.empty()) {
    const auto position = rank.table->take_turn(rank.batch, now_);
    if (!position) throw Violation("a turn that is ready can be taken", "");
    if (!rank.replaying || position->epoch != rank.epoch) {
      throw Violation("nothing begins out of its epoch", fmt::format("rank {}", rank.rank));
    }
    rank.settled.clear();
    rank.phase = Phase::taken;
    return;
  }
  rank.batch = std::move(rank.queue.front());
  rank.queue.erase(rank.queue.begin());
  start(rank);
}

void ExploredWorld::start(ExploredRank& rank) {
  const std::vector<int> all = members(rank.batch);
  const bool makes_set = rank.batch.kind == OpKind::add_process_set;
  const bool member = std::binary_search(all.begin(), all.end(), rank.rank);
  if (rank.batch.kind == OpKind::remove_process_set || (makes_set && !member)) {
    rank.phase = Phase::moved;
    return;
  }
  if (!member) throw Violation("members only", fmt::format("rank {}", rank.rank));
  rank.number = rank.collectives.at(static_cast<std::size_t>(rank.batch.process_set))++;
  rank.phase = Phase::moving;
  meet(rank, Phase::moving);
}

/// Cancels a wait that can never end, because a member has not begun the turn.
void ExploredWorld::settle(ExploredRank& rank, const std::vector<std::uint64_t>& begun) {
  if (rank.batch.sequence == 0) return;
  if (rank.phase == Phase::taken) rank.settled = begun;
  if (rank.phase != Phase::at_fence) return;
  if (rank.batch.sequence > *std::max_element(begun.begin(), begun.end())) return;
  for (const int member : members(rank.batch)) {
    if (begun[index(member)] < rank.batch.sequence) rank.phase = Phase::cancelled;
  }
}

void ExploredWorld::arrive(ExploredRank& rank) {
  rank.phase = Phase::at_fence;
  if (!rank.settled.empty()) settle(rank, std::exchange(rank.settled, {}));
  if (rank.phase == Phase::at_fence) meet(rank, Phase::at_fence);
}

/// Lets the collective of `rank` begin if all its members wait for it in this phase.
void ExploredWorld::meet(const ExploredRank& rank, Phase phase) {
  const std::vector<int> all = members(rank.batch);
  for (const int member : all) {
    const ExploredRank& other = at(member);
    if (of(member).gone || other.phase != phase) return;
    if (phase == Phase::at_fence) {
      if (other.batch.sequence != rank.batch.sequence) return;
    } else if (other.number != rank.number || other.batch.process_set != rank.batch.process_set) {
      return;
    }
  }
  for (const int member : all) {
    ExploredRank& it = edit(member);
    if (phase == Phase::at_fence) {
      it.table->commit_turn();
      it.number = it.collectives.at(static_cast<std::size_t>(it.batch.process_set))++;
    }
    it.phase = Phase::moved;
  }
  check_partners(all);
}

void ExploredWorld::check_partners(const std::vector<int>& members) const {
  const ExploredRank& one = at(members.front());
  for (const int member : members) {
    const ExploredRank& it = at(member);
    if (it.number != one.number || it.batch.kind != one.batch.kind ||
        it.batch.process_set != one.batch.process_set || it.batch.digest != one.batch.digest ||
        it.batch.tensors.size() != one.batch.tensors.size() ||
        it.batch.contributors != one.batch.contributors || it.batch.members != one.batch.members) {
      throw Violation("equal collectives",
                      fmt::format("ranks {} and {} run different ones", one.rank, member));
    }
  }
  if (one.batch.kind == OpKind::add_process_set) return;
  for (std::size_t i = 0; i < one.batch.tensors.size(); ++i) {
    int meaning = -1;
    for (const int member : members) {
      const PendingTensor& tensor = *at(member).batch.tensors[i];
      if (tensor.stand_in) continue;
      const auto& program = scenario_->programs[index(member)];
      const int its = program[step_of(tensor)].meaning;
      if (meaning >= 0 && its != meaning) {
        throw Violation("right partners",
                        fmt::format("'{}' with '{}'", tensor.submission.request.name,
                                    scenario_->meanings[static_cast<std::size_t>(meaning)].name));
      }
      meaning = its;
    }
    if (meaning < 0) throw Violation("right partners", "a collective of stand-ins only");
    const Meaning& means = scenario_->meanings[static_cast<std::size_t>(meaning)];
    int contributors = 0;
    for (const int member : members) {
      const bool stands_in = at(member).batch.tensors[i]->stand_in;
      if (stands_in != means.stand_in[index(member)]) {
        throw Violation("stand-ins", fmt::format("rank {} for '{}'", member, means.name));
      }
      if (!stands_in) ++contributors;
    }
    const bool divides = scenario_->over_contributors && contributors < std::ssize(members);
    if (one.batch.contributors != (divides ? contributors : 0)) {
      throw Violation("divisor", fmt::format("{} of '{}'", one.batch.contributors, means.name));
    }
  }
}

void ExploredWorld::complete(ExploredRank& rank) {
  const bool turn = rank.batch.sequence != 0;
  if (turn && !std::exchange(rank.completing, true)) rank.table->end_turn();
  if (rank.phase == Phase::cancelled) {
    say(rank.rank, "withdraws its turn");
    return become_idle(rank);
  }
  auto& tensors = rank.batch.tensors;
  std::erase_if(tensors, [](const auto& tensor) { return tensor->stand_in; });
  if (!tensors.empty()) {
    const auto tensor = tensors.front();
    tensors.erase(tensors.begin());
    resolve(rank, *tensor, std::nullopt);
  }
  if (!tensors.empty()) return;
  if (!turn && rank.rank == 0 && rank.ending == Ending::none)
    rank.tasks.push_back({LoopTask::Kind::batch_done, -1});
  become_idle(rank);
}

void ExploredWorld::become_idle(ExploredRank& rank) {
  rank.phase = Phase::idle;
  rank.completing = false;
  rank.number = 0;
  rank.settled.clear();
  rank.batch = {};
}

/// The backend was aborted, so a call that waits returns with an error.
void ExploredWorld::stop_executor(ExploredRank& rank) {
  if (rank.executor != Executor::over) rank.executor = Executor::stopped;
  if (rank.busy() && rank.phase != Phase::moved) become_idle(rank);
}

void ExploredWorld::executor_ends(ExploredRank& rank) {
  rank.executor = Executor::over;
  rank.queue.clear();
  const Errc code = rank.ending == Ending::failed ? rank.code : Errc::shut_down;
  for (const auto& tensor : rank.table->take_all()) resolve(rank, *tensor, code);
}

// ---------------------------------------------------------------------------------------------

namespace {

std::string names_of(const Submitted& message) {
  std::string names;
  for (const Announcement& operation : message.operations) {
    names += (names.empty() ? "" : " ") + operation.request.name;
  }
  return names;
}

std::string text_of(const Decision& decision) {
  if (const auto* batch = std::get_if<FusedBatch>(&decision)) {
    return fmt::format("run {}", fmt::join(batch->names, "+"));
  }
  if (const auto* rejection = std::get_if<Rejection>(&decision)) return "reject " + rejection->name;
  if (std::holds_alternative<SetAdded>(decision)) return "set added";
  if (std::holds_alternative<SetRemoved>(decision)) return "set removed";
  if (std::holds_alternative<AllJoined>(decision)) return "all joined";
  return fmt::format("freeze, epoch {}", std::get<Freeze>(decision).epoch);
}

}  // namespace

std::string to_string(const Message& message) {
  if (const auto* it = std::get_if<Submitted>(&message)) {
    return fmt::format("Submitted {} (epoch {})", names_of(*it), it->epoch);
  }
  if (const auto* it = std::get_if<Schedule>(&message)) {
    std::vector<std::string> texts;
    for (const Decision& decision : it->decisions) texts.push_back(text_of(decision));
    return fmt::format("Schedule {}", fmt::join(texts, "; "));
  }
  if (const auto* it = std::get_if<Stopped>(&message)) {
    return fmt::format("Stopped at {:#x}", it->sequence);
  }
  if (const auto* it = std::get_if<Abort>(&message)) {
    return fmt::format("Abort because of {}", it->fault.rank);
  }
  if (const auto* it = std::get_if<Suspicion>(&message)) {
    return fmt::format("Suspicion of {}", it->rank);
  }
  if (const auto* it = std::get_if<PeerLost>(&message)) {
    return fmt::format("PeerLost {}", it->rank);
  }
  if (const auto* it = std::get_if<ThawRequest>(&message)) {
    return fmt::format("ThawRequest (epoch {})", it->epoch);
  }
  if (std::holds_alternative<ShutdownRequested>(message)) return "ShutdownRequested";
  if (std::holds_alternative<ShutdownAcknowledged>(message)) return "ShutdownAcknowledged";
  if (std::holds_alternative<Thaw>(message)) return "Thaw";
  if (std::holds_alternative<Resume>(message)) return "Resume";
  return "Heartbeat";
}

}  // namespace hvd::explore
