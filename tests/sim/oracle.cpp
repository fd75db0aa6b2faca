#include "oracle.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/all_ranks.hpp>

#include "policy/negotiator.hpp"
#include "trace.hpp"

namespace hvd::sim {
namespace {

using namespace detail;  // NOLINT: a test

const Record* record_of(const PendingTensor& tensor) {
  return static_cast<const Record*>(tensor.submission.input);
}

/// Compares requests as users see them: without each rank's own rows and device.
bool alike(Request a, const Request& b) {
  if (needs_rows(a.kind) && !a.shape.empty() && !b.shape.empty()) a.shape.front() = b.shape.front();
  a.splits = b.splits;
  a.device.index = b.device.index;
  return a == b;
}

bool is_control(OpKind kind) {
  return kind == OpKind::join || kind == OpKind::add_process_set ||
         kind == OpKind::remove_process_set;
}

}  // namespace

std::string to_string(const Logical& logical) {
  std::string by = "by";
  for (const auto& [rank, record] : logical.records) {
    by += fmt::format(" {}{}", rank,
                      !record->resolved ? "?"
                      : record->error   ? fmt::format("({})", to_string(*record->error))
                                        : "");
  }
  return fmt::format("'{}' of set {}, number {} of era {}, {}", logical.name, logical.process_set,
                     logical.number, logical.era, by);
}

Oracle::Oracle(int ranks) : ranks_(ranks), of_(static_cast<std::size_t>(ranks)) {
  sets_[0] = all_ranks(ranks);
}

Record& Oracle::submitted(int rank, const Request& request) {
  OfRank& mine = of_[static_cast<std::size_t>(rank)];
  const OperationKey key = key_of(request);
  int number = 0;
  if (request.group.empty()) {
    number = mine.submissions[key]++;
  } else {
    GroupCount& count = mine.groups[{key.first, request.group}];
    number = count.groups;
    if (++count.members == request.group_size) count = {number + 1, 0};
  }
  Logical& logical = logicals_[{key.first, key.second, mine.era, number}];
  if (logical.members.empty()) {
    logical.process_set = key.first;
    logical.name = key.second;
    logical.era = mine.era;
    logical.number = number;
    logical.members = sets_.at(key.first);
  }
  Record& record = records_.emplace_back();
  record.rank = rank;
  record.request = request;
  record.logical = &logical;
  if (!request.group.empty()) {
    logical.group = fmt::format("{}/{}/{}/{}", key.first, request.group, mine.era, number);
    groups_[logical.group][rank].insert(key.second);
  }
  if (!mine.pending.try_emplace(key, &record).second) return record;  // to be refused
  logical.records[rank] = &record;
  return record;
}

void Oracle::refused(Record& record) {
  OfRank& mine = of_[static_cast<std::size_t>(record.rank)];
  const OperationKey key = key_of(record.request);
  if (record.request.group.empty()) {
    --mine.submissions[key];
  } else {
    GroupCount& count = mine.groups[{key.first, record.request.group}];
    if (count.members == 0) count = {count.groups - 1, record.request.group_size};
    --count.members;
    groups_[record.logical->group][record.rank].erase(key.second);
  }
  const auto at = mine.pending.find(key);
  if (at != mine.pending.end() && at->second == &record) mine.pending.erase(at);
  record.logical->records.erase(record.rank);
  const auto other = mine.pending.find(key);
  if (other != mine.pending.end() && other->second->logical == record.logical) {
    record.logical->records[record.rank] = other->second;
  }
  record.resolved = true;
}

bool Oracle::pending(int rank, const OperationKey& key) const {
  return of_[static_cast<std::size_t>(rank)].pending.count(key) > 0;
}

void Oracle::joining(int rank, bool over_contributors) {
  OfRank& mine = of_[static_cast<std::size_t>(rank)];
  mine.joined = true;
  auto& joined = joined_in_[mine.era];
  joined.resize(static_cast<std::size_t>(ranks_));
  joined[static_cast<std::size_t>(rank)] = true;
  over_contributors_ = over_contributors;
}

void Oracle::shutdown_requested(int) { ++shutdown_requests_; }

void Oracle::set_added(std::int32_t id, const std::vector<int>& ranks) {
  const auto [at, is_new] = sets_.try_emplace(id, ranks);
  if (!is_new && at->second != ranks) {
    throw Violation("sets agree", fmt::format("set {} is [{}] and [{}]", id,
                                              fmt::join(at->second, ","), fmt::join(ranks, ",")));
  }
}

void Oracle::set_removed(std::int32_t id) { removed_[id] = true; }

void Oracle::paired(const std::vector<int>& members,
                    const std::vector<const LocalBatch*>& batches) {
  const LocalBatch& first = *batches.front();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const LocalBatch& batch = *batches[i];
    if (batch.kind != first.kind || batch.tensors.size() != first.tensors.size() ||
        batch.contributors != first.contributors || batch.digest != first.digest ||
        batch.sequence != first.sequence) {
      throw Violation("equal collectives", fmt::format("rank {} and rank {} run different ones",
                                                       members.front(), members[i]));
    }
  }
  for (std::size_t index = 0; index < first.tensors.size(); ++index) {
    check_tensor(members, batches, index);
  }
}

void Oracle::check_tensor(const std::vector<int>& members,
                          const std::vector<const LocalBatch*>& batches, std::size_t index) {
  const Logical* logical = nullptr;
  const Record* one = nullptr;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const PendingTensor& tensor = *batches[i]->tensors[index];
    if (tensor.stand_in) continue;
    const Record* record = record_of(tensor);
    if (record->rank != members[i]) throw Violation("own operations", "one of another rank");
    if (record->resolved) {
      throw Violation("resolved once",
                      fmt::format("{} runs and is over", to_string(*record->logical)));
    }
    if (!logical) {
      logical = record->logical;
      one = record;
      continue;
    }
    if (logical != record->logical) {
      throw Violation("right partners",
                      fmt::format("{} with {}", to_string(*logical), to_string(*record->logical)));
    }
    if (!alike(one->request, record->request)) {
      throw Violation("equal operations", to_string(*logical));
    }
  }
  if (!logical) throw Violation("right partners", "a collective of stand-ins only");
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!batches[i]->tensors[index]->stand_in) continue;
    const auto joined = joined_in_.find(logical->era);
    if (joined == joined_in_.end() || !joined->second[static_cast<std::size_t>(members[i])]) {
      throw Violation("stand-ins",
                      fmt::format("rank {} has not joined: {}", members[i], to_string(*logical)));
    }
    if (logical->records.count(members[i]) > 0) {
      throw Violation("stand-ins", fmt::format("rank {} has data of its own: {}", members[i],
                                               to_string(*logical)));
    }
  }
  const int contributors = static_cast<int>(logical->records.size());
  const int divisor = over_contributors_ && contributors < std::ssize(members) ? contributors : 0;
  if (batches.front()->contributors != divisor) {
    throw Violation("divisor",
                    fmt::format("{} for {} of {} ranks: {}", batches.front()->contributors,
                                contributors, members.size(), to_string(*logical)));
  }
  check_rows(*logical, members, batches, index);
  for (const LocalBatch* batch : batches) {
    if (batch->tensors[index]->stand_in) continue;
    const_cast<Record*>(record_of(*batch->tensors[index]))->paired = true;
  }
}

void Oracle::check_rows(const Logical& logical, const std::vector<int>& members,
                        const std::vector<const LocalBatch*>& batches, std::size_t index) const {
  const OpKind kind = logical.records.begin()->second->request.kind;
  if (!needs_rows(kind)) return;
  for (std::size_t place = 0; place < batches.size(); ++place) {
    std::vector<std::int64_t> right;
    for (const int member : members) {
      const Request& request = logical.records.at(member)->request;
      right.push_back(kind == OpKind::allgather ? request.shape.front() : request.splits[place]);
    }
    if (batches[place]->rows.size() <= index || batches[place]->rows[index] != right) {
      throw Violation("rows", fmt::format("rank {}: {}", members[place], to_string(logical)));
    }
  }
}

void Oracle::resolved(Record& record, std::optional<Errc> error) {
  if (record.resolved) throw Violation("resolved once", to_string(*record.logical));
  OfRank& mine = of_[static_cast<std::size_t>(record.rank)];
  if (!error && !is_control(record.request.kind) && !record.paired) {
    throw Violation("results come from collectives", to_string(*record.logical));
  }
  record.resolved = true;
  record.error = error;
  mine.pending.erase(key_of(record.request));
  if (record.request.kind == OpKind::join && !error) {
    ++mine.era;
    mine.joined = false;
    mine.submissions.clear();
    mine.groups.clear();
  }
}

std::optional<Errc> Oracle::own_error(const Logical& logical) const {
  const Request& first = logical.records.begin()->second->request;
  for (const auto& [rank, record] : logical.records) {
    if (!alike(first, record->request)) return Errc::mismatch;
  }
  if (logical.records.size() < logical.members.size() && first.kind != OpKind::allreduce &&
      first.kind != OpKind::barrier) {
    return Errc::unsupported;
  }
  return std::nullopt;
}

/// Returns whether the member, which has not submitted the operation, has joined instead.
bool Oracle::left_out(const Logical& logical, int member) const {
  const auto joined = joined_in_.find(logical.era);
  return joined != joined_in_.end() && joined->second[static_cast<std::size_t>(member)];
}

/// Returns whether every rank has submitted this operation's group, or has joined, and the groups
/// have different members.
bool Oracle::groups_differ(const Logical& logical) const {
  const auto& of_ranks = groups_.at(logical.group);
  const std::set<std::string>* first = nullptr;
  bool differ = false;
  for (const int member : logical.members) {
    const auto at = of_ranks.find(member);
    if (at == of_ranks.end() || at->second.empty()) {
      if (!left_out(logical, member)) return false;
      continue;
    }
    if (!first) first = &at->second;
    differ = differ || at->second != *first;
  }
  return differ;
}

Oracle::Expectation Oracle::expected(const Logical& logical) const {
  if (logical.records.begin()->second->request.kind == OpKind::join) {
    return {std::nullopt, logical.records.size() == logical.members.size()};
  }
  Expectation expectation;
  for (const int member : logical.members) {
    if (logical.records.count(member) == 0 && !left_out(logical, member)) {
      expectation.complete = false;
    }
  }
  expectation.error = own_error(logical);
  return expectation;
}

void Oracle::conclude(bool job_failed) const {
  std::map<std::string, std::set<Errc>> groups;  // all members of a group have the same outcome
  std::map<std::string, bool> incomplete;
  for (const auto& [key, logical] : logicals_) {
    if (logical.group.empty() || logical.records.empty()) continue;
    const Expectation one = expected(logical);
    if (one.complete && one.error) groups[logical.group].insert(*one.error);
    if (groups_differ(logical)) {
      groups[logical.group].insert(Errc::mismatch);
    } else if (!one.complete) {
      incomplete[logical.group] = true;
    }
  }
  for (const auto& entry : logicals_) {
    const auto& logical = entry.second;
    if (logical.records.empty()) continue;
    Expectation expectation = expected(logical);
    if (!logical.group.empty()) {
      expectation.complete = incomplete.count(logical.group) == 0;
      if (const auto at = groups.find(logical.group); at != groups.end()) {
        const std::optional<Errc> error = logical.records.begin()->second->error;
        const bool one_of_them = error && at->second.count(*error) > 0;
        expectation.error = one_of_them ? *error : *at->second.begin();
      }
    }
    const Record& first = *logical.records.begin()->second;
    for (const auto& [rank, record] : logical.records) {
      const auto wrong = [&](const std::string& why) {
        throw Violation("outcome", fmt::format("{}: {}", why, to_string(logical)));
      };
      // When the job failed, any error is right, and the records of a dead rank have no outcome.
      if (job_failed && (record->error || !record->resolved)) continue;
      if (!job_failed && record->error != first.error) wrong("not the same on every rank");
      if (!job_failed && record->reported != first.reported && (is_control(record->request.kind))) {
        wrong("not the same report on every rank");
      }
      const bool excused = record->error == Errc::shut_down && anybody_left();
      const bool set_gone =
          record->error == Errc::invalid_argument && removed_.count(logical.process_set) > 0;
      if (excused || (set_gone && !expectation.complete)) continue;
      if (!expectation.complete) wrong("some rank never submitted it");
      if (record->error != expectation.error) {
        wrong(expectation.error ? fmt::format("expected {}", hvd::to_string(*expectation.error))
                                : std::string("expected a result"));
      }
    }
  }
}

std::string Oracle::unresolved() const {
  std::string text;
  for (const auto& [key, logical] : logicals_) {
    for (const auto& [rank, record] : logical.records) {
      if (record->resolved) continue;
      text += fmt::format("\n  {}", to_string(logical));
      break;
    }
  }
  return text;
}

}  // namespace hvd::sim
