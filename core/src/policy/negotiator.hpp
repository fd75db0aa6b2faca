// Finds the operations that all ranks are ready for. It has no clock, thread or socket and iterates
// over nothing unordered.
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

#include "policy/decision.hpp"
#include "policy/fusion_plan.hpp"
#include "policy/messages.hpp"
#include "policy/operation_key.hpp"

namespace hvd::detail {

/// Describes an operation that some ranks wait for and others have not submitted.
struct Stall {
  std::string name;
  OpKind kind = OpKind::allreduce;
  std::vector<int> submitted;
  std::vector<int> missing;
  Clock::duration age{};
};

/// The name of every join. A rank has one pending at most.
inline constexpr std::string_view kJoinName = "join";

/// Rejects an operation for those ranks alone that have announced it. The others have not, and may
/// yet submit another operation under its name.
struct PartialRejection {
  Rejection rejection;
  std::vector<int> ranks;
};

/// A decision of the negotiator is a list of tensors that run as one collective, a rejection for
/// some ranks only, or another decision, which is the same for all ranks.
using FusedTensors = std::vector<ReadyTensor>;
using Agreement = std::variant<FusedTensors, Decision, PartialRejection>;

/// Implements the state machine of rank 0, which turns events into the agreements that `take`
/// returns.
class Negotiator {
 public:
  Negotiator(int size, std::size_t fusion_threshold);

  /// Records that each of these ranks, which are ascending, is ready for these operations. Throws
  /// Errc::protocol, with a fault that names the rank, when a rank breaks the protocol: one of the
  /// operations is still pending from it, or it is not a member of the operation's set.
  void submitted(const std::vector<int>& ranks, std::vector<Announcement> operations,
                 Clock::time_point now);
  /// Records that `rank` has shut down. Operations that are pending in its sets, or are submitted
  /// there later, are rejected.
  void departed(int rank);
  /// Forgets the operations that are announced and not taken, because the ranks will announce them
  /// again. Joined and departed ranks remain so.
  void forget_pending();

  /// Records that a member of this group (process set and name) has run without negotiation and the
  /// others have not, so that they do not wait for it.
  void ran(const OperationKey& group) { ++groups_[group].ran; }

  /// Returns all agreements that are no batch, and up to `max_batches` batches, oldest first.
  /// Tensors that are ready at the same time are fused.
  [[nodiscard]] std::vector<Agreement> take(std::size_t max_batches);

  /// Tells whether every rank has departed and everything decided has been taken.
  [[nodiscard]] bool finished() const noexcept;
  /// Tells whether no rank has joined or departed, and nothing but batches is to be decided.
  [[nodiscard]] bool everybody_works() const noexcept {
    return departed_.empty() && joined_.empty() && decided_.empty() && after_ready_.empty();
  }
  /// Tells whether members of a group are ready and not taken.
  [[nodiscard]] bool group_is_ready() const;
  /// Returns the operations that some ranks have announced and others have not.
  [[nodiscard]] std::vector<OperationKey> pending() const;
  /// Returns the operations that have waited for at least `age`, oldest first. If there is none,
  /// returns the join, if no rank has submitted anything for as long: ranks that have not joined
  /// may train for hours.
  [[nodiscard]] std::vector<Stall> stalls(Clock::time_point now, Clock::duration age) const;
  /// Returns the ranks of an existing set, ascending.
  [[nodiscard]] const std::vector<int>& members(std::int32_t process_set) const {
    return sets_.at(process_set);
  }
  [[nodiscard]] bool has_set(std::int32_t id) const {
    return sets_.count(id) > 0 && removed_.count(id) == 0;
  }
  void set_fusion_threshold(std::size_t bytes) noexcept { fusion_threshold_ = bytes; }

 private:
  friend struct StateReader;  // tests/explore reads and copies the whole state
  struct Entry {
    std::vector<Announcement> operations;  // by order of arrival; mostly all ranks announce one
    std::vector<std::vector<int>> ranks;   // the senders, parallel to `operations`
    std::vector<bool> announced;           // by rank
    std::size_t count = 0;                 // of the ranks that announced it
    Clock::time_point since;
    std::uint64_t arrival = 0;  // order among entries

    [[nodiscard]] bool has(int rank) const { return announced[static_cast<std::size_t>(rank)]; }
  };
  /// Every rank announces all its members of a group at once. The group is over when all ranks have
  /// announced theirs: then it runs or, if they did not name the same members, fails.
  struct Group {
    struct Share {
      std::int32_t size = 0;       // the number of members according to the rank
      std::int32_t announced = 0;  // how many members it has announced
    };
    std::map<int, Share> shares;     // by rank
    std::size_t whole = 0;           // ranks that have announced all their members
    std::int32_t ran = 0;            // members that are not announced, because they have run
    std::set<std::string> open;      // members that some rank has announced and others have not
    std::vector<ReadyTensor> ready;  // in the order in which they became ready
    std::string failure;             // why the group cannot run; empty while it may
    Errc code = Errc::mismatch;
  };
  using Pending = std::map<OperationKey, Entry>;

  void check(const std::vector<int>& ranks, const Request& request, std::size_t members) const;
  void submitted(const std::vector<int>& ranks, Announcement operation, Clock::time_point now);
  void join(int rank, const Request& request);
  void complete_what_waited_for_joined();
  [[nodiscard]] bool complete(const OperationKey& key, const Entry& entry) const;
  void resolve(Pending::node_type done);
  void ready(ReadyTensor tensor);
  [[nodiscard]] static bool is_whole(const Group& group, const Group::Share& share) noexcept {
    return share.announced + group.ran == share.size;
  }
  [[nodiscard]] bool may_announce(int rank, const Request& member) const;
  void announced_in_group(int rank, const Request& member);
  [[nodiscard]] bool is_over(const OperationKey& key, const Group& group) const;
  std::set<std::string> close(const OperationKey& key, const Entry& entry);
  void settle(const OperationKey& key);
  void fail_groups(std::int32_t process_set, const std::set<std::string>& groups, Errc code,
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
  std::set<std::int32_t> removed_;  // sets that are dropped once nothing of theirs is ready
  Pending pending_;
  std::map<OperationKey, Group> groups_;
  std::deque<Agreement> decided_;
  std::deque<Decision> after_ready_;  // these must not overtake the tensors in `ready_`
  std::deque<ReadyTensor> ready_;
  std::set<int> departed_;
  std::set<int> joined_;
  Clock::time_point last_submission_;  // by any rank
  bool over_contributors_ = false;
};

}  // namespace hvd::detail
