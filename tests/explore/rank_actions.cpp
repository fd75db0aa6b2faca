#include "rank_actions.hpp"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trace.hpp"

namespace hvd::explore {

using namespace detail;  // NOLINT: a test
using sim::Violation;

namespace {

ExploredWorld* current = nullptr;  // NOLINT: see RankActions::enter

std::exception_ptr error_of(Errc code) { return std::make_exception_ptr(Error(code, "")); }

}  // namespace

RankActions& RankActions::of(int rank) {
  static RankActions all[kMostRanks] = {RankActions(0), RankActions(1), RankActions(2)};
  return all[rank];
}

void RankActions::enter(ExploredWorld& world) { current = &world; }

ExploredRank& RankActions::me() { return current->edit(rank_); }

void RankActions::send(const std::vector<int>& to, const Message& message) {
  current->send(rank_, to, message);
}

std::shared_ptr<PendingTensor> RankActions::scheduled(const OperationKey& key) {
  auto tensor = me().table->find(key);
  if (tensor) me().table->mark_scheduled(*tensor);
  return tensor;
}

void RankActions::run(const FusedBatch& fused) {
  LocalBatch batch;
  batch.process_set = fused.process_set;
  batch.rows = fused.rows;
  batch.contributors = fused.contributors;
  for (std::size_t i = 0; i < fused.names.size(); ++i) {
    auto tensor = scheduled({fused.process_set, fused.names[i]});
    if (!tensor && !fused.requests.empty()) {
      tensor = std::make_shared<PendingTensor>();
      tensor->stand_in = true;
      tensor->submission.request = fused.requests[i];
    }
    if (!tensor) {
      throw Violation("what is scheduled is pending",
                      fmt::format("rank {}: '{}'", rank_, fused.names[i]));
    }
    batch.tensors.push_back(std::move(tensor));
  }
  batch.kind = batch.tensors.front()->submission.request.kind;
  me().queue.push_back(std::move(batch));
}

void RankActions::carry_out(const Rejection& rejection) {
  const auto tensor = me().table->find({rejection.process_set, rejection.name});
  if (tensor) current->resolve(me(), *tensor, rejection.code);
}

void RankActions::carry_out(const SetAdded& added) {
  LocalBatch batch;
  batch.kind = OpKind::add_process_set;
  batch.process_set = added.id;
  batch.members = added.ranks;
  if (auto tensor = scheduled({0, added.name})) {
    const Shape& asked = tensor->submission.request.shape;
    if (added.id != 1 ||
        !std::equal(asked.begin(), asked.end(), added.ranks.begin(), added.ranks.end())) {
      throw Violation("sets agree", fmt::format("set {} on rank {}", added.id, rank_));
    }
    batch.tensors.push_back(std::move(tensor));
  }
  me().queue.push_back(std::move(batch));
}

void RankActions::carry_out(const SetRemoved& removed) {
  LocalBatch batch;
  batch.kind = OpKind::remove_process_set;
  batch.process_set = removed.id;
  if (auto tensor = scheduled({0, removed.name})) batch.tensors.push_back(std::move(tensor));
  me().queue.push_back(std::move(batch));
}

void RankActions::carry_out(const AllJoined&) {
  const auto tensor = me().table->find({0, std::string(kJoinName)});
  if (tensor) current->resolve(me(), *tensor, std::nullopt);
}

void RankActions::carry_out(const Freeze& freeze) {
  ExploredRank& it = me();
  current->say(rank_, "freezes the schedule");
  if (freeze.epoch <= it.epoch) throw Violation("epochs grow", fmt::format("{}", freeze.epoch));
  it.epoch = freeze.epoch;
  it.replaying = true;
  follow_up(it.table->freeze(freeze.plan, freeze.epoch));
}

void RankActions::follow_up(const TensorTable::Next& next) {
  if (next.announce) me().tasks.push_back({LoopTask::Kind::announce, -1});
  if (next.thaw) me().tasks.push_back({LoopTask::Kind::thaw, -1});
}

std::uint64_t RankActions::stop_replay() {
  me().replaying = false;
  return me().table->stop();
}

void RankActions::resume(const std::vector<std::uint64_t>& begun) {
  ExploredRank& it = me();
  current->say(rank_, "resumes negotiation");
  it.table->resume(begun);
  current->settle(it, begun);
  it.protocol.submitted(it.table->take_unannounced(), current->now_);
}

void RankActions::stalled(const Stall&) {}

void RankActions::failed(const Verdict& verdict) {
  Abort message;
  message.code = verdict.code;
  message.fault.rank = verdict.rank;
  message.fault.cause = verdict.cause;
  send(me().protocol.followers(), message);
  if (rank_ != 0) {
    me().left = true;
    current->close(rank_);
  }
  aborted(message);
}

void RankActions::aborted(const Abort& message) {
  me().table->close(error_of(message.code));
  current->failed(me(), message);
}

void RankActions::shutdown_acknowledged() {
  ExploredRank& it = me();
  current->say(rank_, "shutdown acknowledged");
  if (!it.closed) {
    throw Violation("an acknowledged shutdown was requested", fmt::format("rank {}", rank_));
  }
  it.ending = RankFacts::Ending::shut_down;
  it.tasks.clear();  // the protocol is over
  if (it.executor == RankFacts::Executor::running) it.executor = RankFacts::Executor::draining;
}

}  // namespace hvd::explore
