// Holds this rank's pending operations and its place in the frozen schedule. Any thread may call
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/local_batch.hpp"
#include "engine/pending_tensor.hpp"
#include "policy/messages.hpp"
#include "policy/operation_key.hpp"
#include "policy/replay.hpp"

namespace hvd::detail {

class TensorTable {
 public:
  TensorTable(int rank, int size);

  /// Tells what the caller has to do after a change of the table.
  struct Next {
    bool announce = false;  ///< the loop has something to announce
    bool run = false;       ///< a collective of the frozen schedule may begin
    bool thaw = false;      ///< the frozen schedule does not hold the operation
  };

  /// Adds all tensors or none; several are the members of one group. Throws Errc::duplicate_name,
  /// also for a group that is still pending, or the error that `close` was given. `observed` counts
  /// the results that this rank has seen so far.
  Next add(std::span<const std::shared_ptr<PendingTensor>> tensors, std::uint64_t observed);
  /// Returns what was added since the last call, in order, for the negotiation.
  [[nodiscard]] std::vector<Announcement> take_unannounced();

  /// Returns the operation of this key that waits to be scheduled, or null. An operation that
  /// already runs is not found, although its name is taken: a message of rank 0 concerns the next
  /// operation of that name.
  [[nodiscard]] std::shared_ptr<PendingTensor> find(const OperationKey& key) const;
  /// Frees the name of an operation that a device has still to do. It stays among those that
  /// `oldest`, `waiting` and `take_all` return until `remove`.
  void launch(const std::shared_ptr<PendingTensor>& tensor);
  /// Frees the name. The caller does so before the work completes, so that a thread that waited for
  /// the work can submit under the name at once.
  void remove(const PendingTensor& tensor);
  void remove(std::span<const std::shared_ptr<PendingTensor>> tensors);
  /// Starts to replay this plan; operations that wait take their places in it.
  Next freeze(FrozenSchedule plan, std::uint32_t epoch);
  /// Tells whether a collective may begin, so that `take_turn` returns one. Takes no lock.
  [[nodiscard]] bool turn_ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  /// If operations of this rank wait because it has not submitted all of the next collective,
  /// returns the number of that collective since the freeze, otherwise nothing.
  [[nodiscard]] std::optional<std::uint64_t> held_back() const;
  /// Returns since when a turn waits for other ranks, or nothing when none does.
  [[nodiscard]] std::optional<Clock::time_point> waits_since() const;

  /// Begins the next collective of the frozen schedule, a turn: writes it over `batch`, whose
  /// memory is used again. Returns its position in the schedule, or nothing when none may begin.
  /// One turn is taken at a time, and each is ended by `end_turn`. `now` is the present time.
  [[nodiscard]] std::optional<SchedulePosition> take_turn(LocalBatch& batch, Clock::time_point now);
  /// The caller calls it before this rank announces the turn, with data of its tensors. Returns
  /// false when `resume` has withdrawn the turn: then its tensors must not be touched any more.
  [[nodiscard]] bool begin_announcing() noexcept;
  void end_announcing() noexcept;
  /// Records that all members have reached the turn.
  void commit_turn() noexcept { phase_.store(TurnPhase::committed, std::memory_order_relaxed); }
  /// Ends the turn and removes the tensors that were `done` in it.
  void end_turn(std::span<const std::shared_ptr<PendingTensor>> done = {});

  /// Lets no further turn begin. Returns the last sequence number begun, or 0.
  [[nodiscard]] SequenceNumber stop();
  /// Returns to negotiation: operations of turns that not all members have begun are announced
  /// again. `begun` holds by rank what `stop` returned there. A turn that some member has not begun
  /// is withdrawn. When this returns, no thread touches its tensors any more; for that it waits
  /// while the turn is being announced, which takes microseconds and depends on no other rank.
  void resume(const std::vector<SequenceNumber>& begun);

  /// Makes `add` and `check_open` throw `error` from now on. Only the first call counts.
  void close(std::exception_ptr error);
  void check_open() const;
  /// Removes and returns everything pending.
  [[nodiscard]] std::vector<std::shared_ptr<PendingTensor>> take_all();

  struct Oldest {
    std::string name;
    OpKind kind;
    bool scheduled;
    Clock::time_point since;
    std::int32_t process_set = 0;
  };
  [[nodiscard]] std::optional<Oldest> oldest() const;
  /// Holds the number of pending operations, and the oldest `most` of them, oldest first.
  struct Waiting {
    std::size_t count = 0;
    std::vector<Oldest> oldest;
  };
  [[nodiscard]] Waiting waiting(std::size_t most) const;
  void mark_scheduled(PendingTensor& tensor);

 private:
  friend struct StateReader;  // tests/explore reads and copies the whole state
  using Tensor = std::shared_ptr<PendingTensor>;

  /// Describes the progress of the turn that `take_turn` began.
  enum class TurnPhase : std::uint32_t { begun, announcing, announced, committed, withdrawn };

  struct Turn {
    SequenceNumber sequence = 0;  // 0: no turn runs
    Clock::time_point since;
    std::vector<int> members;
    std::vector<PendingTensor*> tensors;  // all of them are in `pending_`
  };

  [[nodiscard]] bool insert(const Tensor& tensor);
  void add(Next& next, const Tensor& tensor, bool fits);
  void announce_again();
  void forget(const PendingTensor& tensor);
  [[nodiscard]] std::vector<const PendingTensor*> unfinished() const;
  void look_ahead() noexcept;
  void withdraw_turn() noexcept;

  const int rank_;
  const std::vector<int> everybody_;
  mutable std::mutex mutex_;
  OperationMap<Tensor> pending_;           // by the names in their requests
  PendingTensor::Groups groups_;           // the groups that have pending members
  OperationMap<Tensor>::node_type spare_;  // the node removed last, which the next entry uses
  std::set<Tensor> launched_;              // their names are free
  std::vector<Tensor> unannounced_;
  std::exception_ptr closed_;
  std::uint64_t order_ = 0;
  std::uint64_t observed_ = 0;
  std::uint32_t segment_ = 0;
  std::optional<Replay> replay_;
  bool stopped_ = false;
  Turn turn_;  // keeps its memory
  std::atomic<TurnPhase> phase_{TurnPhase::begun};
  std::atomic<bool> ready_{false};  // written with the mutex
};

}  // namespace hvd::detail
