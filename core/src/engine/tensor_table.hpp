// This rank's pending operations, and its place in the frozen schedule. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/job.hpp"
#include "engine/pending_tensor.hpp"
#include "policy/messages.hpp"
#include "policy/operation_key.hpp"
#include "policy/replay.hpp"

namespace hvd {

class TensorTable {
 public:
  TensorTable(int rank, int size);

  /// What has to happen after a change here.
  struct Next {
    bool announce = false;  ///< the loop has something to announce
    bool run = false;       ///< a collective of the frozen schedule may begin
    bool thaw = false;      ///< the frozen schedule does not hold this
  };

  /// All or none; several are all members of one group. Throws Errc::duplicate_name, also for a
  /// group that is still pending, or what `close` was given. `observed` counts results that this
  /// rank has seen so far.
  Next add(std::span<const std::shared_ptr<PendingTensor>> tensors, std::uint64_t observed);
  /// What was added since the last call, in order, for the negotiation.
  [[nodiscard]] std::vector<Announcement> take_unannounced();

  /// Null when no such operation waits to be scheduled: one that runs still bears its name, and
  /// what comes from rank 0 then means the next.
  [[nodiscard]] std::shared_ptr<PendingTensor> find(const OperationKey& key) const;
  /// The name is free again. To be called before the work completes, so that whoever waited for it
  /// can submit at once.
  void remove(const PendingTensor& tensor);
  void remove(std::span<const std::shared_ptr<PendingTensor>> tensors);
  /// From now on this plan is replayed; operations that wait take their places in it.
  Next freeze(FrozenSchedule plan, std::uint32_t epoch);
  /// A collective may begin: `take_turn` has something. Takes no lock.
  [[nodiscard]] bool turn_ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  /// Operations of this rank wait because it has not submitted all of the next collective: which
  /// one that is, counted from the freeze. Nothing when that is not so.
  [[nodiscard]] std::optional<std::uint64_t> held_back() const;
  /// Since when a collective that was begun waits for its other ranks; nothing when none does.
  [[nodiscard]] std::optional<Clock::time_point> waits_since() const;

  /// Begins the next collective of the frozen schedule, a turn: writes it over `job`, whose memory
  /// is used again. Returns its position in the schedule, or nothing when none may begin. One turn
  /// is taken at a time, and each is ended by `end_turn`. The clock shows `now`.
  [[nodiscard]] std::optional<SchedulePosition> take_turn(Job& job, Clock::time_point now);
  /// To be called before this rank announces the turn, with data of its tensors. False when
  /// `resume` has withdrawn the turn: then its tensors must not be touched any more.
  [[nodiscard]] bool begin_announcing() noexcept;
  void end_announcing() noexcept;
  /// All members have come to the turn.
  void commit_turn() noexcept { phase_.store(TurnPhase::committed, std::memory_order_relaxed); }
  /// Ends the turn and removes the tensors that were `done` in it.
  void end_turn(std::span<const std::shared_ptr<PendingTensor>> done = {});

  /// Nothing more begins; returns the last ticket begun, 0: none.
  [[nodiscard]] Ticket stop();
  /// Returns to negotiation: what was not begun by all its members is announced again. `begun`
  /// holds by rank what `stop` returned there. A turn that some member has not begun is withdrawn.
  /// When this returns, nobody touches its tensors any more; for that it waits while the turn is
  /// being announced, which takes microseconds and depends on no other rank.
  void resume(const std::vector<Ticket>& begun);

  /// From now on `add` and `check_open` throw `error`. The first call counts.
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
  /// All that is pending: how many, and the oldest `most` of them, oldest first.
  struct Waiting {
    std::size_t count = 0;
    std::vector<Oldest> oldest;
  };
  [[nodiscard]] Waiting waiting(std::size_t most) const;
  void mark_scheduled(PendingTensor& tensor);

 private:
  using Tensor = std::shared_ptr<PendingTensor>;

  /// How far the turn has come that `take_turn` began.
  enum class TurnPhase : std::uint32_t { begun, announcing, announced, committed, withdrawn };

  struct Turn {
    Ticket ticket = 0;  // 0: no turn runs
    Clock::time_point since;
    std::vector<int> members;
    std::vector<PendingTensor*> tensors;  // pending
  };

  [[nodiscard]] bool insert(const Tensor& tensor);
  void add(Next& next, const Tensor& tensor, bool fits);
  void announce_again();
  void forget(const PendingTensor& tensor);
  void look_ahead() noexcept;
  void withdraw_turn() noexcept;

  const int rank_;
  const std::vector<int> everybody_;
  mutable std::mutex mutex_;
  OperationMap<Tensor> pending_;           // by the names in their requests
  PendingTensor::Groups groups_;           // that have pending members
  OperationMap<Tensor>::node_type spare_;  // of the last that was removed, for the next
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

}  // namespace hvd
