#include "user.hpp"

#include <algorithm>
#include <utility>

#include "policy/negotiator.hpp"
#include "rank.hpp"
#include "world.hpp"

namespace hvd::sim {
namespace {

using namespace detail;  // NOLINT: a test

constexpr Nanos kFirstLook = kMilli;
constexpr Nanos kLastLook = 100 * kMilli;

/// A training loop can continue after these errors.
bool harmless(Errc code) { return code == Errc::mismatch || code == Errc::unsupported; }

}  // namespace

User::User(World& world, SimRank& rank, const RankProgram& program)
    : world_(world), rank_(rank), program_(program), threads_(program.threads.size()) {
  for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i].acts = &program.threads[i];
  running_ = static_cast<int>(threads_.size());
}

void User::start() {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    go_on(i, world_.random.spread(kMicro, 10 * kMilli));
  }
}

void User::go_on(std::size_t thread, Nanos delay) {
  world_.events.at(world_.events.now() + delay, rank_.rank(), [this, thread] { run(thread); });
}

void User::run(std::size_t index) {
  Thread& thread = threads_[index];
  if (thread.waits) {
    thread.waits = false;
    if (!observe(thread)) return end(thread);
  }
  for (;;) {
    if (thread.next == thread.acts->size()) return end(thread);
    const Act& act = (*thread.acts)[thread.next++];
    if (!perform(thread, index, act)) return;
    // A thread is rarely interrupted.
    if (world_.random.chance(50)) return go_on(index, world_.delays.local(rank_.rank()));
  }
}

void User::end(Thread& thread) {
  if (std::exchange(thread.over, true)) return;
  if (--running_ == 0) rank_.program_over(program_.linger);
}

bool User::perform(Thread& thread, std::size_t index, const Act& act) {
  switch (act.kind) {
    case Act::Kind::submit:
      if (submit(thread, index, act)) return true;
      end(thread);
      return false;
    case Act::Kind::wait_all:
      return wait(thread, index, std::exchange(thread.submitted, {}));
    case Act::Kind::wait_last: {
      std::vector<Record*> last{thread.submitted.back()};
      thread.submitted.pop_back();
      return wait(thread, index, std::move(last));
    }
    case Act::Kind::forget_last:
      if (!thread.submitted.empty()) thread.submitted.pop_back();
      return true;
    case Act::Kind::compute:
      go_on(index, act.duration);
      return false;
    case Act::Kind::join: {
      Request request;
      request.name = kJoinName;
      request.kind = OpKind::join;
      request.over_contributors = act.over_contributors;
      world_.oracle.joining(rank_.rank(), act.over_contributors);
      return control(thread, index, std::move(request), -1);
    }
    case Act::Kind::add_set: {
      Request request;
      request.kind = OpKind::add_process_set;
      request.name = fmt::format("add.{}", controls_++);
      request.shape.assign(act.ranks.begin(), act.ranks.end());
      return control(thread, index, std::move(request), act.slot);
    }
    case Act::Kind::remove_set: {
      Request request;
      request.kind = OpKind::remove_process_set;
      request.name = fmt::format("remove.{}", controls_++);
      request.shape = {sets_.at(act.slot)};
      return control(thread, index, std::move(request), -1);
    }
    case Act::Kind::abort:
      rank_.abort();
      return true;
  }
  return true;
}

bool User::control(Thread& thread, std::size_t index, Request request, int slot) {
  std::vector<Record*> records;
  if (!rank_.submit({std::move(request)}, slot, records)) {
    end(thread);
    return false;
  }
  return wait(thread, index, std::move(records));
}

/// Returns false when nothing can be submitted any more.
bool User::submit(Thread& thread, std::size_t, const Act& act) {
  std::vector<Request> requests;
  for (const Operation& operation : act.operations) {
    Request& request = requests.emplace_back(operation.request);
    if (operation.slot >= 0) request.process_set = sets_.at(operation.slot);
    // If the first was rejected meanwhile, this would be a new operation that no other rank
    // submits.
    if (act.while_pending && !world_.oracle.pending(rank_.rank(), key_of(request))) return true;
  }
  return rank_.submit(std::move(requests), -1, thread.submitted);
}

bool User::wait(Thread& thread, std::size_t index, std::vector<Record*> records) {
  thread.awaited = std::move(records);
  const bool done = std::all_of(thread.awaited.begin(), thread.awaited.end(),
                                [](const Record* record) { return record->resolved; });
  if (done) {
    if (observe(thread)) return true;
    end(thread);
    return false;
  }
  thread.waits = true;
  ++thread.waits_so_far;
  look(index, thread.waits_so_far, kFirstLook);
  return false;
}

/// Does what the product's waiting threads do regularly: checks whether a job can run or is
/// delayed.
void User::look(std::size_t index, std::uint64_t wait, Nanos pause) {
  world_.events.at(world_.events.now() + pause, rank_.rank(), [this, index, wait, pause] {
    Thread& thread = threads_[index];
    if (!thread.waits || thread.waits_so_far != wait || rank_.executor().over()) return;
    rank_.looked();
    look(index, wait, std::min(2 * pause, kLastLook));
  });
}

void User::resolved(Record& record) {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    if (!thread.waits) continue;
    if (std::find(thread.awaited.begin(), thread.awaited.end(), &record) == thread.awaited.end())
      continue;
    const bool done = std::all_of(thread.awaited.begin(), thread.awaited.end(),
                                  [](const Record* one) { return one->resolved; });
    if (done) go_on(i, world_.delays.local(rank_.rank()));
  }
}

/// The thread sees the results. Returns false when the program then gives up.
bool User::observe(Thread& thread) {
  ++observations_;
  const std::vector<Record*> seen = std::exchange(thread.awaited, {});
  return std::all_of(seen.begin(), seen.end(), [](const Record* record) {
    return !record->error || harmless(*record->error);
  });
}

}  // namespace hvd::sim
