#include "fake_gpu/clique.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fake_gpu/fake_gpu.hpp"

namespace hvd::test::fake_gpu {

bool Clique::join(int rank, int device) {
  const std::lock_guard lock(mutex_);
  const bool shared = std::any_of(devices_.begin(), devices_.end(),
                                  [&](const auto& taken) { return taken.second == device; });
  return !shared && devices_.emplace(rank, device).second;
}

bool Clique::complete() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(devices_.size()) == size_;
}

bool Clique::connect(int rank, Call::Kind kind) {
  const std::lock_guard lock(mutex_);
  std::set<int>& ranks = connected_[kind];
  ranks.insert(rank);
  return static_cast<int>(ranks.size()) == size_;
}

bool Clique::meet(int rank, const Call& call) {
  std::unique_lock lock(mutex_);
  const std::uint64_t index = next_[rank]++;
  Meeting& meeting = meetings_[index];
  meeting.calls.emplace(rank, call);
  if (static_cast<int>(meeting.calls.size()) == size_) {
    run(meeting);
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return meeting.ran || aborted_.contains(rank); });
  const bool done = meeting.ran && meeting.fits;
  if (++meeting.gone == size_) meetings_.erase(index);
  return done;
}

void Clique::run(Meeting& meeting) {
  meeting.ran = true;
  const Call& first = meeting.calls.at(0);
  std::vector<const void*> inputs;
  for (const auto& [rank, call] : meeting.calls) {
    meeting.fits = meeting.fits && call.kind == first.kind && call.count == first.count &&
                   call.type == first.type && call.reduction == first.reduction &&
                   call.root == first.root;
    inputs.push_back(call.src);
  }
  if (!meeting.fits) {
    violate("ranks made different NCCL calls");
    return;
  }
  // NCCL would hang here if the switch or the network used the buffers directly.
  if (std::any_of(meeting.calls.begin(), meeting.calls.end(),
                  [&](const auto& each) { return each.second.registered != first.registered; })) {
    violate("some ranks passed registered memory to a collective, and others did not");
  }
  const bool scatters = first.kind == Call::Kind::reduce_scatter;
  const std::size_t count = first.count * (scatters ? inputs.size() : 1);
  if (first.kind == Call::Kind::allgather) {
    std::vector<std::byte> all;
    for (const void* input : inputs) {
      const auto* const part = static_cast<const std::byte*>(input);
      all.insert(all.end(), part, part + count * size_of(first.type));
    }
    return deliver(meeting, all);
  }
  if (first.kind != Call::Kind::broadcast) {
    deliver(meeting, reduce(inputs, count, first.type, first.reduction));
    return;
  }
  const auto* const source = static_cast<const std::byte*>(meeting.calls.at(first.root).src);
  deliver(meeting, {source, source + count * size_of(first.type)});
}

void Clique::deliver(const Meeting& meeting, const std::vector<std::byte>& result) {
  for (const auto& [rank, call] : meeting.calls) {
    const std::size_t bytes = call.count * size_of(call.type);
    if (call.kind == Call::Kind::reduce && rank != call.root) continue;
    const bool scatters = call.kind == Call::Kind::reduce_scatter;
    const bool gathers = call.kind == Call::Kind::allgather;
    const std::size_t from = scatters ? static_cast<std::size_t>(rank) * bytes : 0;
    const std::size_t size = gathers ? result.size() : std::min(bytes, result.size() - from);
    if (size > 0) std::memcpy(call.dst, result.data() + from, size);
  }
}

bool Clique::pass(int rank, const Call& call) {
  const std::size_t bytes = call.count * size_of(call.type);
  std::unique_lock lock(mutex_);
  if (call.kind == Call::Kind::send) {
    const auto* const source = static_cast<const std::byte*>(call.src);
    messages_[{rank, call.root}].emplace_back(source, source + bytes);
    changed_.notify_all();
    return true;
  }
  auto& inbox = messages_[{call.root, rank}];
  changed_.wait(lock, [&] { return !inbox.empty() || aborted_.contains(rank); });
  if (inbox.empty()) return false;
  const std::vector<std::byte> message = std::move(inbox.front());
  inbox.pop_front();
  if (message.size() != bytes) {
    violate("a message of another size than was expected");
    return false;
  }
  std::memcpy(call.dst, message.data(), bytes);
  return true;
}

void Clique::abort(int rank) {
  const std::lock_guard lock(mutex_);
  aborted_.insert(rank);
  changed_.notify_all();
}

bool Clique::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_.insert(rank);
  std::set<int> gone = left_;
  gone.insert(aborted_.begin(), aborted_.end());
  return static_cast<int>(gone.size()) == size_;
}

}  // namespace hvd::test::fake_gpu
