#include "state_reader.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

namespace hvd::detail {

using explore::StateHasher;

/// Overloads of `absorb` for everything that the objects consist of. As a nested class of a friend
/// it may name private types.
struct StateReader::Parts {
  StateHasher& hasher;
  Clock::time_point now;

  template <class... T>
  void all(const T&... values) {
    (absorb(values), ...);
  }
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void absorb(const T& value) {
    hasher.word(static_cast<std::uint64_t>(value));
  }
  void absorb(const double& value) { hasher.word(std::bit_cast<std::uint64_t>(value)); }
  void absorb(const std::string& text) {
    hasher.word(text.size());
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      word = (word << 8) | static_cast<unsigned char>(text[i]);
      if (i % 8 == 7) hasher.word(word);
    }
    hasher.word(word);
  }
  template <class A, class B>
  void absorb(const std::pair<A, B>& pair) {
    all(pair.first, pair.second);
  }
  template <class T>
  void absorb(const std::optional<T>& value) {
    hasher.word(value ? 1 : 0);
    if (value) absorb(*value);
  }
  template <class... T>
  void absorb(const std::variant<T...>& value) {
    hasher.word(value.index());
    std::visit([&](const auto& it) { absorb(it); }, value);
  }
  template <class Range>
  requires requires(const Range& range) {
    range.begin();
    range.size();
  }
  void absorb(const Range& range) {
    hasher.word(range.size());
    for (const auto& element : range) absorb(element);
  }

  // Messages, decisions and plans.
  // `f32_memory` is false in all programs, and left out so that the ledger's hashes stay.
  void absorb(const Request& request) {
    const auto& [name, kind, dtype, op, device, shape, root, prescale, postscale, process_set,
                 group, group_size, splits, over_contributors, f32_memory] = request;
    all(name, kind, dtype, op, device.kind, device.index, shape, root, prescale, postscale,
        process_set, group, group_size, splits, over_contributors);
  }
  void absorb(const Announcement& announcement) {
    const auto& [request, segment] = announcement;
    all(request, segment);
  }
  void absorb(const FusedBatch& batch) {
    const auto& [process_set, names, rows, requests, contributors] = batch;
    all(process_set, names, rows, requests, contributors);
  }
  void absorb(const Rejection& rejection) {
    const auto& [process_set, name, code, message] = rejection;
    all(process_set, name, code, message);
  }
  void absorb(const PartialRejection& partial) {
    const auto& [rejection, ranks] = partial;
    all(rejection, ranks);
  }
  void absorb(const SetAdded& added) {
    const auto& [name, id, ranks] = added;
    all(name, id, ranks);
  }
  void absorb(const SetRemoved& removed) {
    const auto& [name, id] = removed;
    all(name, id);
  }
  void absorb(const AllJoined& joined) { absorb(joined.last); }
  void absorb(const PlannedBatch& batch) {
    const auto& [process_set, members, requests, rows] = batch;
    all(process_set, members, requests, rows);
  }
  void absorb(const FrozenSchedule& plan) { absorb(plan.batches); }
  void absorb(const Freeze& freeze) { all(freeze.epoch, freeze.plan); }
  void absorb(const ReadyTensor& tensor) {
    const auto& [request, rows, segments, contributors] = tensor;
    all(request, rows, segments, contributors);
  }

  // The negotiator. `since` and `last_submission` serve warnings about stalls only, which are off.
  void absorb(const Negotiator::Entry& entry) {
    const auto& [operations, ranks, announced, count, since, arrival] = entry;
    all(operations, ranks);
  }
  void absorb(const Negotiator::Group::Share& share) {
    const auto& [size, announced] = share;
    all(size, announced);
  }
  void absorb(const Negotiator::Group& group) {
    const auto& [shares, whole, ran, open, ready, failure, code] = group;
    all(shares, whole, ran, open, ready, failure, code);
  }
  void absorb(const Negotiator& negotiator) {
    const auto& [size, fusion_threshold, arrivals, next_set, sets, removed, pending, groups,
                 decided, after_ready, ready, departed, joined, last_submission,
                 over_contributors] = negotiator;
    all(next_set, sets, removed, pending, groups, decided, after_ready, ready, departed, joined,
        over_contributors);
    // Only the order of arrivals counts.
    for (const auto& one : pending) {
      const std::uint64_t arrival = one.second.arrival;
      absorb(std::count_if(pending.begin(), pending.end(), [arrival](const auto& other) {
        return other.second.arrival < arrival;
      }));
    }
  }

  // The names of a round are those of its tensors.
  void absorb(const ScheduleLearner::Round& round) {
    const auto& [fingerprint, tensors, keys] = round;
    all(fingerprint, tensors);
  }
  void absorb(const ScheduleLearner& learner) {
    const auto& [settings, closed, recent, known, cycle, patience] = learner;
    all(closed, recent, known, cycle, patience);
  }

  // Times of evidence count from the last tick: what a late tick forgives is not held against
  // peers.
  void absorb(const FaultDetector& detector) {
    const auto& [settings, last_tick, peers, pause, best] = detector;
    const auto relative = [&](Clock::time_point at, Clock::time_point base) {
      hasher.word(static_cast<std::uint64_t>((at - base).count()));
    };
    relative(last_tick, now);
    for (const auto& [number, peer] : peers) {
      const auto& [heard, answered, overdue] = peer;
      absorb(number);
      relative(heard, last_tick);
      relative(answered, last_tick);
      relative(overdue, last_tick);
    }
    const bool paused = pause && now - pause->end < settings.peer_timeout;
    absorb(paused);
    if (paused) {
      relative(pause->end, now);
      relative(Clock::time_point(pause->length), Clock::time_point());
    }
    absorb(best.has_value());
    if (best) {
      all(best->strength, best->verdict.code, best->verdict.rank, best->verdict.cause);
      relative(best->since, last_tick);
      relative(Clock::time_point(best->wait), Clock::time_point());
    }
  }

  // Settings and routes are the same in all states. Blocked times are never given.
  void absorb(const Protocol& protocol) {
    const auto& [settings, routes, parent, children, neighbours, actions, detector, below,
                 reported_loss, over, refused, epoch, mode, leaving, times, slowest, negotiator,
                 learner, in_flight, plan, reported, reports, begun, stalls_reported, news] =
        protocol;
    absorb(over);
    if (over) return;
    all(detector, reported_loss, epoch, mode, leaving);
    if (settings.rank == 0) all(negotiator, learner, in_flight, plan, reported, begun);
  }

  // The table and the batches. A tensor is known by the index of its operation in the program.
  void absorb(const PendingTensor& tensor) {
    hasher.word(static_cast<std::uint64_t>(
        reinterpret_cast<std::uintptr_t>(tensor.submission.input)));  // NOLINT
    all(tensor.stand_in, tensor.segment, tensor.scheduled, tensor.planned);
    if (tensor.stand_in) absorb(tensor.submission.request);
  }
  void absorb(const std::shared_ptr<PendingTensor>& tensor) { absorb(*tensor); }
  void absorb(const Replay& replay) {
    const auto& [plan, digest, epoch, rank, mine, keys, names, next, missing, waiting, begun] =
        replay;
    all(digest, epoch, next, missing, waiting, begun);
    for (const auto& of_turn : keys) {
      for (const OperationKeyView& key : of_turn) {
        const Replay::Name& name = names.at(key);
        all(name.next, name.cycle);
      }
    }
  }
  void absorb(const TensorTable& table) {
    const auto& [rank, everybody, mutex, pending, groups, spare, launched, unannounced, closed,
                 order, observed, segment, replay, stopped, turn, phase, ready] = table;
    std::vector<const PendingTensor*> tensors;
    for (const auto& [key, tensor] : pending) tensors.push_back(tensor.get());
    std::sort(tensors.begin(), tensors.end(),
              [](const auto* a, const auto* b) { return a->order < b->order; });
    for (const PendingTensor* tensor : tensors) absorb(*tensor);
    all(tensors.size(), groups, launched.size(), unannounced, closed != nullptr, observed, segment,
        replay, stopped, turn.sequence, ready.load());
    if (turn.sequence == 0) return;
    all(turn.members, phase.load());
    for (const PendingTensor* tensor : turn.tensors) absorb(*tensor);
  }
  void absorb(const LocalBatch& batch) {
    const auto& [kind, process_set, tensors, rows, contributors, sequence, digest, members] = batch;
    all(kind, process_set, tensors, rows, contributors, sequence, digest, members);
  }

  /// Makes the keys refer to the names in the copy's own plan.
  static Replay copy(const Replay& from) {
    Replay to = from;
    to.names_.clear();
    for (std::size_t turn = 0; turn < to.mine_.size(); ++turn) {
      const PlannedBatch& batch = to.plan_.batches[to.mine_[turn]];
      for (std::size_t i = 0; i < batch.requests.size(); ++i) {
        OperationKeyView& key = to.keys_[turn][i];
        key.name = batch.requests[i].name;
        to.names_.try_emplace(key, from.names_.at(key));
      }
    }
    return to;
  }
};

void StateReader::read(StateHasher& hasher, const Protocol& protocol, Clock::time_point now) {
  Parts{hasher, now}.absorb(protocol);
}
void StateReader::read(StateHasher& hasher, const TensorTable& table) {
  Parts{hasher, {}}.absorb(table);
}
void StateReader::read(StateHasher& hasher, const LocalBatch& batch) {
  Parts{hasher, {}}.absorb(batch);
}

std::shared_ptr<PendingTensor> TensorCopies::of(const std::shared_ptr<PendingTensor>& tensor) {
  for (const auto& [original, copied] : copies_) {
    if (original == tensor.get()) return copied;
  }
  auto made = std::make_shared<PendingTensor>();
  made->submission.request = tensor->submission.request;
  made->submission.input = tensor->submission.input;
  made->stand_in = tensor->stand_in;
  made->group = tensor->group;
  made->key = tensor->key;
  made->key.name = made->submission.request.name;
  made->order = tensor->order;
  made->segment = tensor->segment;
  made->scheduled = tensor->scheduled;
  made->planned = tensor->planned;
  copies_.emplace_back(tensor.get(), made);
  return made;
}

LocalBatch TensorCopies::of(const LocalBatch& batch) {
  LocalBatch copied = batch;
  for (auto& tensor : copied.tensors) tensor = of(tensor);
  return copied;
}

std::unique_ptr<TensorTable> StateReader::copy(const TensorTable& from, int rank, int size,
                                               TensorCopies& copies) {
  auto to = std::make_unique<TensorTable>(rank, size);
  to->groups_ = from.groups_;
  for (const auto& [key, tensor] : from.pending_) {
    const auto copied = copies.of(tensor);
    if (copied->group) copied->group = &*to->groups_.find(copied->group->first);
    to->pending_.try_emplace(copied->key, copied);
  }
  if (!from.spare_.empty()) {  // keeps the table on the path that uses a node again
    OperationMap<TensorTable::Tensor> one;
    one.try_emplace(OperationKeyView(0, ""), nullptr);
    to->spare_ = one.extract(one.begin());
  }
  for (const auto& tensor : from.launched_) to->launched_.insert(copies.of(tensor));
  for (const auto& tensor : from.unannounced_) to->unannounced_.push_back(copies.of(tensor));
  to->closed_ = from.closed_;
  to->order_ = from.order_;
  to->observed_ = from.observed_;
  to->segment_ = from.segment_;
  if (from.replay_) to->replay_.emplace(Parts::copy(*from.replay_));
  to->stopped_ = from.stopped_;
  to->turn_.sequence = from.turn_.sequence;
  if (from.turn_.sequence != 0) {
    to->turn_.since = from.turn_.since;
    to->turn_.members = from.turn_.members;
    for (const PendingTensor* tensor : from.turn_.tensors) {
      to->turn_.tensors.push_back(to->pending_.at(tensor->key).get());
    }
  }
  to->phase_.store(from.phase_.load());
  to->ready_.store(from.ready_.load());
  return to;
}

}  // namespace hvd::detail
