#include "policy/negotiator.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/process_set.hpp>

#include "policy/mismatch.hpp"

namespace hvd::detail {
namespace {

bool contains(const std::vector<int>& sorted, int rank) {
  return std::binary_search(sorted.begin(), sorted.end(), rank);
}

/// Says that a rank breaks the protocol.
Error defect(int rank, const std::string& what) {
  Fault fault;
  fault.rank = rank;
  fault.cause = what;
  return {Errc::protocol, fault};
}

/// Returns the ranks of all lists, ascending.
std::vector<int> together(const std::vector<std::vector<int>>& lists) {
  std::vector<int> all;
  for (const std::vector<int>& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

Negotiator::Negotiator(int size, std::size_t fusion_threshold)
    : size_(size), fusion_threshold_(fusion_threshold) {
  sets_.emplace(0, all_ranks(size));
}

void Negotiator::submitted(const std::vector<int>& ranks, std::vector<Announcement> operations,
                           Clock::time_point now) {
  for (Announcement& operation : operations) submitted(ranks, std::move(operation), now);
}

/// Checks properties on which the other methods rely, and which every rank checks before it
/// announces an operation.
void Negotiator::check(const std::vector<int>& ranks, const Request& request,
                       std::size_t members) const {
  bool good = true;
  switch (request.kind) {
    case OpKind::alltoall:
      good = request.splits.size() == members;
      break;
    case OpKind::add_process_set:
      good = !request.shape.empty() && request.shape.front() >= 0 && request.shape.back() < size_ &&
             std::adjacent_find(request.shape.begin(), request.shape.end(),
                                std::greater_equal<>()) == request.shape.end();
      break;
    case OpKind::remove_process_set:
      good = request.shape.size() == 1;
      break;
    default:
      break;
  }
  if (request.group.empty() && request.group_size < 0) good = false;
  for (const int rank : ranks) {
    if (good && (request.group.empty() || may_announce(rank, request))) continue;
    throw defect(rank, fmt::format("rank {}: malformed '{}'", rank, request.name));
  }
}

/// A rank has to give all members of its group the same size.
bool Negotiator::may_announce(int rank, const Request& member) const {
  if (member.group_size < 1) return false;
  const auto at = groups_.find({member.process_set, member.group});
  if (at == groups_.end()) return true;
  const Group& group = at->second;
  const auto share = group.shares.find(rank);
  return share == group.shares.end() || is_whole(group, share->second) ||
         share->second.size == member.group_size;
}

void Negotiator::submitted(const std::vector<int>& ranks, Announcement operation,
                           Clock::time_point now) {
  last_submission_ = now;
  const OperationKey key = key_of(operation.request);
  if (auto pair = pair_members(key.first, size_)) sets_.try_emplace(key.first, *std::move(pair));
  if (misses_departed(key.first)) return reject_departed(key);
  const auto set = sets_.find(key.first);
  if (set == sets_.end() || removed_.count(key.first) > 0) {
    return reject(key, Errc::invalid_argument,
                  fmt::format("'{}': its process set has been removed", key.second));
  }
  for (const int rank : ranks) {
    if (contains(set->second, rank)) continue;
    throw defect(
        rank, fmt::format("rank {} submitted '{}' to a process set of others", rank, key.second));
  }
  check(ranks, operation.request, set->second.size());
  if (operation.request.kind == OpKind::join) {
    for (const int rank : ranks) join(rank, operation.request);
    return;
  }
  auto [at, is_new] = pending_.try_emplace(key);
  Entry& entry = at->second;
  if (is_new) {
    entry.announced.resize(static_cast<std::size_t>(size_));
    entry.since = now;
    entry.arrival = arrivals_++;
  }
  const OperationKey group{key.first, operation.request.group};
  for (const int rank : ranks) {
    if (entry.has(rank)) {
      throw defect(rank, fmt::format("rank {} submitted '{}' twice", rank, key.second));
    }
    entry.announced[static_cast<std::size_t>(rank)] = true;
    if (!group.second.empty()) announced_in_group(rank, operation.request);
  }
  entry.count += ranks.size();
  if (is_new || !(operation == entry.operations.front())) {
    entry.operations.push_back(std::move(operation));
    entry.ranks.push_back(ranks);
  } else {
    std::vector<int>& same = entry.ranks.front();
    same.insert(same.end(), ranks.begin(), ranks.end());
  }
  if (complete(key, entry)) resolve(pending_.extract(at));
  settle(group);
}

/// Tells whether every member that has not joined has submitted the operation.
bool Negotiator::complete(const OperationKey& key, const Entry& entry) const {
  const std::vector<int>& members = sets_.at(key.first);
  if (entry.count == members.size()) return true;
  if (joined_.empty()) return false;
  return std::all_of(members.begin(), members.end(),
                     [&](int rank) { return joined_.count(rank) > 0 || entry.has(rank); });
}

void Negotiator::join(int rank, const Request& request) {
  if (joined_.empty()) over_contributors_ = request.over_contributors;
  if (!joined_.insert(rank).second) {
    throw defect(rank, fmt::format("rank {} joined twice", rank));
  }
  complete_what_waited_for_joined();
  if (std::ssize(joined_) < size_) return;
  // This follows the tensors that are ready, since a rank whose join is complete may submit their
  // names anew.
  after_ready_.emplace_back(AllJoined{rank});
  joined_.clear();
}

void Negotiator::complete_what_waited_for_joined() {
  std::vector<std::pair<std::uint64_t, OperationKey>> done;
  for (const auto& [key, entry] : pending_) {
    if (complete(key, entry)) done.emplace_back(entry.arrival, key);
  }
  std::sort(done.begin(), done.end());
  for (const auto& [arrival, key] : done) {
    auto entry = pending_.extract(key);
    if (entry) resolve(std::move(entry));  // otherwise its group has failed meanwhile
  }
  std::vector<OperationKey> groups;
  for (const auto& [key, group] : groups_) groups.push_back(key);
  for (const OperationKey& key : groups) settle(key);
}

/// Decides about an operation that every member has submitted.
void Negotiator::resolve(Pending::node_type done) {
  const OperationKey& key = done.key();
  const Entry& entry = done.mapped();
  const std::set<std::string> groups = close(key, entry);
  const auto fail = [&](Errc code, const std::string& why) {
    reject(key, code, why);
    fail_groups(key.first, groups, code, why);
    for (const std::string& group : groups) settle({key.first, group});
  };
  std::vector<Request> requests;
  for (const Announcement& operation : entry.operations) requests.push_back(operation.request);
  const Request& request = requests.front();
  if (const auto mismatch = describe_mismatch(requests, entry.ranks)) {
    return fail(Errc::mismatch, *mismatch);
  }
  const bool all_here = entry.count == sets_.at(key.first).size();
  if (!all_here && request.kind != OpKind::allreduce && request.kind != OpKind::barrier) {
    return fail(Errc::unsupported,
                fmt::format("{} '{}' needs every rank, but {} {} joined", to_string(request.kind),
                            key.second, ranks_text(joined_), joined_.size() == 1 ? "has" : "have"));
  }
  switch (request.kind) {
    case OpKind::add_process_set: {
      std::vector<int> ranks(request.shape.begin(), request.shape.end());
      decided_.emplace_back(SetAdded{key.second, next_set_, ranks});
      sets_.emplace(next_set_++, std::move(ranks));
      break;
    }
    case OpKind::remove_process_set:
      remove_set(request);
      break;
    default:
      ready(merge(key, entry));
  }
}

void Negotiator::remove_set(const Request& request) {
  const auto id = static_cast<std::int32_t>(request.shape.front());
  if (!has_set(id) || id == 0) {
    return reject(key_of(request), Errc::invalid_argument,
                  fmt::format("process set {} does not exist", id));
  }
  std::vector<OperationKey> orphans;
  for (const auto& [key, entry] : pending_) {
    if (key.first == id) orphans.push_back(key);
  }
  std::vector<OperationKey> groups;
  for (const auto& [key, group] : groups_) {
    if (key.first != id) continue;
    groups.push_back(key);
    for (const ReadyTensor& member : group.ready) orphans.push_back(key_of(member.request));
  }
  for (const OperationKey& key : groups) groups_.erase(key);
  for (const OperationKey& key : orphans) {
    pending_.erase(key);
    reject(key, Errc::invalid_argument,
           fmt::format("'{}': its process set has been removed", key.second));
  }
  removed_.insert(id);  // ready operations still need its members
  after_ready_.emplace_back(SetRemoved{request.name, id});
}

ReadyTensor Negotiator::merge(const OperationKey& key, const Entry& entry) const {
  const std::vector<int>& members = sets_.at(key.first);
  const std::size_t count = members.size();
  ReadyTensor tensor;
  int first = size_;
  if (entry.count == count) tensor.segments.resize(count);
  for (std::size_t i = 0; i < entry.operations.size(); ++i) {
    const Request& request = entry.operations[i].request;
    const int least = *std::min_element(entry.ranks[i].begin(), entry.ranks[i].end());
    if (least < first) {
      first = least;
      tensor.request = request;
    }
    if (needs_rows(request.kind)) tensor.rows.resize(count);
    auto at = members.begin();
    for (const int rank : entry.ranks[i]) {
      // Mostly it is the member that follows the last one.
      if (at == members.end() || *at != rank) {
        at = std::lower_bound(members.begin(), members.end(), rank);
      }
      const auto member = static_cast<std::size_t>(at++ - members.begin());
      if (!tensor.segments.empty()) tensor.segments[member] = entry.operations[i].segment;
      if (!needs_rows(request.kind)) continue;
      tensor.rows[member] =
          request.kind == OpKind::allgather ? std::vector{request.shape.front()} : request.splits;
    }
  }
  if (entry.count < count && over_contributors_) {
    tensor.contributors = static_cast<int>(entry.count);
  }
  return tensor;
}

void Negotiator::ready(ReadyTensor tensor) {
  const Request& request = tensor.request;
  if (request.group.empty()) return ready_.push_back(std::move(tensor));
  Group& group = groups_.at({request.process_set, request.group});
  if (!group.failure.empty()) return reject(key_of(request), group.code, group.failure);
  group.ready.push_back(std::move(tensor));
}

void Negotiator::announced_in_group(int rank, const Request& member) {
  Group& group = groups_[{member.process_set, member.group}];
  Group::Share& share = group.shares[rank];
  if (is_whole(group, share)) {
    // The rank already knows that its last group of this name failed; other ranks do not yet.
    if (share.size > 0) --group.whole;
    share.announced = 0;
  }
  share.size = member.group_size;
  ++share.announced;
  if (is_whole(group, share)) ++group.whole;
  group.open.insert(member.name);
}

/// Tells whether no rank is going to announce another member of this group.
bool Negotiator::is_over(const OperationKey& key, const Group& group) const {
  if (group.whole != group.shares.size()) return false;
  // A group that has failed does not wait for the ranks that have announced no member of it: there
  // the operation that failed may be in another group, or in none.
  if (!group.failure.empty() && group.open.empty()) return true;
  const std::vector<int>& members = sets_.at(key.first);
  if (joined_.empty()) return group.shares.size() == members.size();
  return std::all_of(members.begin(), members.end(), [&](int rank) {
    return joined_.count(rank) > 0 || group.shares.count(rank) > 0;
  });
}

/// Ends the wait for announcements of this operation. Returns its groups: ranks that disagree may
/// have put it into different ones.
std::set<std::string> Negotiator::close(const OperationKey& key, const Entry& entry) {
  std::set<std::string> groups;
  for (const Announcement& operation : entry.operations) {
    if (!operation.request.group.empty()) groups.insert(operation.request.group);
  }
  for (const std::string& group : groups) groups_.at({key.first, group}).open.erase(key.second);
  return groups;
}

/// Lets the members of a group run if the group is over. Where ranks named different members, fails
/// those that some ranks have not announced.
void Negotiator::settle(const OperationKey& key) {
  for (auto at = groups_.find(key); at != groups_.end() && is_over(key, at->second);
       at = groups_.find(key)) {
    Group& group = at->second;
    if (group.open.empty()) {
      for (ReadyTensor& member : group.ready) ready_.push_back(std::move(member));
      groups_.erase(at);
      return;
    }
    const auto left = pending_.extract({key.first, *group.open.begin()});
    const Entry& entry = left.mapped();
    const std::vector<int> announced = together(entry.ranks);
    if (group.failure.empty()) {
      std::vector<int> others;
      for (const auto& [rank, share] : group.shares) {
        if (!entry.has(rank)) others.push_back(rank);
      }
      group.failure =
          describe_group_mismatch(entry.operations.front().request, key.second, announced, others);
    }
    const Errc code = group.code;
    const std::string why = group.failure;
    decided_.emplace_back(
        PartialRejection{Rejection{key.first, left.key().second, code, why}, announced});
    const std::set<std::string> groups = close(left.key(), entry);
    fail_groups(key.first, groups, code, why);
    for (const std::string& other : groups) {
      if (other != key.second) settle({key.first, other});
    }
  }
}

/// A member of these groups cannot run, so no other can: neither those that are ready now nor those
/// that become ready later.
void Negotiator::fail_groups(std::int32_t process_set, const std::set<std::string>& groups,
                             Errc code, const std::string& why) {
  for (const std::string& name : groups) {
    Group& group = groups_.at({process_set, name});
    group.failure = why;
    group.code = code;
    for (const ReadyTensor& member : std::exchange(group.ready, {})) {
      reject(key_of(member.request), code, why);
    }
  }
}

/// Tells whether a member of the set has shut down.
bool Negotiator::misses_departed(std::int32_t process_set) const {
  const auto set = sets_.find(process_set);
  if (set == sets_.end()) return false;
  return std::any_of(departed_.begin(), departed_.end(),
                     [&](int rank) { return contains(set->second, rank); });
}

void Negotiator::departed(int rank) {
  departed_.insert(rank);
  std::vector<OperationKey> keys;
  for (auto at = pending_.begin(); at != pending_.end();) {
    const bool lost = misses_departed(at->first.first);
    if (lost) keys.push_back(at->first);
    at = lost ? pending_.erase(at) : std::next(at);
  }
  for (auto at = groups_.begin(); at != groups_.end();) {
    const bool lost = misses_departed(at->first.first);
    if (lost) {
      for (const ReadyTensor& member : at->second.ready) keys.push_back(key_of(member.request));
    }
    at = lost ? groups_.erase(at) : std::next(at);
  }
  if (!std::exchange(joined_, {}).empty()) keys.emplace_back(0, std::string(kJoinName));
  for (const OperationKey& key : keys) reject_departed(key);
}

void Negotiator::forget_pending() {
  pending_.clear();
  groups_.clear();
  ready_.clear();
}

void Negotiator::reject(const OperationKey& key, Errc code, const std::string& why) {
  decided_.emplace_back(Rejection{key.first, key.second, code, why});
}

void Negotiator::reject_departed(const OperationKey& key) {
  reject(key, Errc::shut_down,
         fmt::format("'{}' cannot complete: {} {} shut down", key.second, ranks_text(departed_),
                     departed_.size() == 1 ? "has" : "have"));
}

std::vector<Agreement> Negotiator::take(std::size_t max_batches) {
  if (ready_.empty() && after_ready_.empty()) {
    for (const std::int32_t id : std::exchange(removed_, {})) sets_.erase(id);
  }
  std::vector<Agreement> agreements;
  for (Agreement& decided : decided_) agreements.push_back(std::move(decided));
  decided_.clear();
  for (; max_batches > 0 && !ready_.empty(); --max_batches) {
    agreements.emplace_back(take_fused(ready_, fusion_threshold_));
  }
  if (ready_.empty()) {
    for (Decision& decision : after_ready_) agreements.emplace_back(std::move(decision));
    after_ready_.clear();
  }
  return agreements;
}

bool Negotiator::finished() const noexcept {
  return std::ssize(departed_) == size_ && ready_.empty() && decided_.empty() &&
         after_ready_.empty();
}

bool Negotiator::group_is_ready() const {
  return std::any_of(ready_.begin(), ready_.end(),
                     [](const ReadyTensor& tensor) { return !tensor.request.group.empty(); });
}

std::vector<OperationKey> Negotiator::pending() const {
  std::vector<OperationKey> keys;
  for (const auto& [key, entry] : pending_) keys.push_back(key);
  for (const auto& [name, group] : groups_) {
    for (const ReadyTensor& member : group.ready) keys.push_back(key_of(member.request));
  }
  return keys;
}

std::vector<Stall> Negotiator::stalls(Clock::time_point now, Clock::duration age) const {
  std::vector<std::pair<std::uint64_t, Stall>> found;
  for (const auto& [key, entry] : pending_) {
    if (now - entry.since < age) continue;
    Stall stall{key.second,
                entry.operations.front().request.kind,
                together(entry.ranks),
                {},
                now - entry.since};
    for (const int rank : sets_.at(key.first)) {
      if (!entry.has(rank) && joined_.count(rank) == 0) stall.missing.push_back(rank);
    }
    found.emplace_back(entry.arrival, std::move(stall));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Stall> stalls;
  for (auto& [arrival, stall] : found) stalls.push_back(std::move(stall));
  const Clock::duration silence = now - last_submission_;
  if (joined_.empty() || silence < age || !stalls.empty()) return stalls;
  Stall join{std::string(kJoinName), OpKind::join, {joined_.begin(), joined_.end()}, {}, silence};
  for (const int rank : sets_.at(0)) {
    if (joined_.count(rank) == 0) join.missing.push_back(rank);
  }
  stalls.push_back(std::move(join));
  return stalls;
}

}  // namespace hvd::detail
