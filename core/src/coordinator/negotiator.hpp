// Which operations all ranks are ready for. Pure: no clock, thread, socket or unordered iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <hvd/core/request.hpp>

#include "coordinator/decision.hpp"
#include "coordinator/fusion_plan.hpp"
#include "coordinator/messages.hpp"
#include "coordinator/operation_key.hpp"

namespace hvd {

/// An operation that some ranks wait for and others have not submitted.
struct Stall {
  std::string name;
  OpKind kind = OpKind::allreduce;
  std::vector<int> submitted;
  std::vector<int> missing;
  Clock::duration age{};
};

/// A rank joins once at a time, under this name.
inline constexpr std::string_view kJoinName = "join";

/// What the negotiator decides: tensors that run as one collective, or anything else, which is the
/// same for all ranks.
using FusedTensors = std::vector<ReadyTensor>;
using Agreement = std::variant<FusedTensors, Decision>;

/// Rank 0's state machine. Events go in, `take` hands out agreements.
class Negotiator {
 public:
  Negotiator(int size, std::size_t fusion_threshold);

  /// `rank` is ready for these operations. Throws Errc::protocol when it is broken: it had already
  /// submitted one of them that is still pending, or is not a member of the operation's set.
  void submitted(int rank, std::vector<Announcement> operations, Clock::time_point now);
  /// `rank` has shut down: what is pending in its sets, and whatever comes there later, is
  /// rejected.
  void departed(int rank);
  /// Forgets what is announced and not taken, but not who has joined or departed: the ranks will
  /// say it again.
  void forget_pending();

  /// This member of a group (process set and name) has run without negotiation, and the others have
  /// not: they do not wait for it.
  void ran(const OperationKey& group, const std::string& name) {
    groups_[group].names.insert(name);
  }

  /// Everything that is no batch, and up to `max_batches` batches, oldest first; tensors that are
  /// ready at the same time are fused.
  [[nodiscard]] std::vector<Agreement> take(std::size_t max_batches);

  /// Every rank has departed and everything decided has been taken.
  [[nodiscard]] bool finished() const noexcept;
  /// No rank has joined or departed, and nothing but batches is to be decided.
  [[nodiscard]] bool everybody_works() const noexcept {
    return departed_.empty() && joined_.empty() && decided_.empty() && after_ready_.empty();
  }
  /// Members of a group are ready and not taken.
  [[nodiscard]] bool group_is_ready() const;
  /// What some ranks have announced.
  [[nodiscard]] std::vector<OperationKey> pending() const;
  /// Operations that have waited for at least `age`, oldest first.
  [[nodiscard]] std::vector<Stall> stalls(Clock::time_point now, Clock::duration age) const;
  /// The ranks of a set, ascending. The set exists.
  [[nodiscard]] const std::vector<int>& members(std::int32_t process_set) const {
    return sets_.at(process_set);
  }
  [[nodiscard]] bool has_set(std::int32_t id) const {
    return sets_.count(id) > 0 && removed_.count(id) == 0;
  }
  void set_fusion_threshold(std::size_t bytes) noexcept { fusion_threshold_ = bytes; }

 private:
  struct Entry {
    std::vector<Announcement> operations;  // by order of arrival
    std::vector<int> ranks;                // who sent it, parallel to `operations`
    Clock::time_point since;
    std::uint64_t arrival = 0;  // order among entries
  };
  struct Group {
    std::set<std::string> names;     // every name seen with it
    std::vector<ReadyTensor> ready;  // in the order they got so
    std::string failure;             // why it cannot run; empty: it may
    Errc code = Errc::mismatch;
  };
  using Pending = std::map<OperationKey, Entry>;

  void check(int rank, const Request& request, std::size_t members) const;
  void submitted(int rank, Announcement operation, Clock::time_point now);
  void join(int rank, const Request& request);
  void complete_what_waited_for_joined();
  [[nodiscard]] bool complete(const OperationKey& key, const Entry& entry) const;
  void resolve(const OperationKey& key, const Entry& entry);
  void ready(ReadyTensor tensor);
  void add_to_group(ReadyTensor tensor);
  void fail(const OperationKey& key, std::span<const Request> requests, Errc code,
            const std::string& why);
  void reject(const OperationKey& key, Errc code, const std::string& why);
  [[nodiscard]] bool misses_departed(std::int32_t process_set) const;
  void reject_departed(const OperationKey& key);
  void remove_set(const Request& request);
  [[nodiscard]] ReadyTensor merge(const OperationKey& key, const Entry& entry) const;

  int size_;
  std::size_t fusion_threshold_;
  std::uint64_t arrivals_ = 0;
  std::int32_t next_set_ = 1;
  std::map<std::int32_t, std::vector<int>> sets_;
  std::set<std::int32_t> removed_;  // of those; to be dropped once nothing of theirs is left
  Pending pending_;
  std::map<OperationKey, Group> groups_;
  std::deque<Decision> decided_;
  std::deque<Decision> after_ready_;  // what must not overtake the tensors that are ready
  std::deque<ReadyTensor> ready_;
  std::set<int> departed_;
  std::set<int> joined_;
  bool over_contributors_ = false;
};

}  // namespace hvd
