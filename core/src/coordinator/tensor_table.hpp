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

#include "coordinator/job.hpp"
#include "coordinator/messages.hpp"
#include "coordinator/operation_key.hpp"
#include "coordinator/pending_tensor.hpp"
#include "coordinator/replay.hpp"

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

  /// All or none. Throws Errc::duplicate_name, or what `close` was given. `observed` counts results
  /// that this rank has seen so far.
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
  Next freeze(Plan plan, std::uint32_t epoch);
  /// A collective may begin: `take_turn` has something. Takes no lock.
  [[nodiscard]] bool turn_ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  /// Operations of this rank wait because it has not submitted all of the next collective: which
  /// one that is, counted from the freeze. Nothing when that is not so.
  [[nodiscard]] std::optional<std::uint64_t> held_back() const;
  /// Since when a collective that was begun waits for its other ranks; nothing when none does.
  [[nodiscard]] std::optional<Clock::time_point> waits_since() const;

  /// Begins the next collective of the frozen schedule: it takes the place of what is in `job`, and
  /// its memory. Returns where it stands, or nothing when none may begin. One at a time, each ended
  /// by `end_turn`. It is `now`.
  [[nodiscard]] std::optional<TicketPlace> take_turn(Job& job, Clock::time_point now);
  /// All members have come to it.
  void commit_turn() noexcept { committed_.store(true, std::memory_order_relaxed); }
  /// And removes what was `done` in it.
  void end_turn(std::span<const std::shared_ptr<PendingTensor>> done = {});

  /// Nothing more begins; returns the last ticket begun, 0: none.
  [[nodiscard]] Ticket stop();
  /// Back to negotiation. What was not begun by all its members is announced again. Returns the
  /// ticket of a turn that is running and must be withdrawn, 0: none.
  [[nodiscard]] Ticket resume(const std::vector<Ticket>& begun);

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

  /// What `take_turn` began.
  struct Turn {
    Ticket ticket = 0;  // 0: none runs
    Clock::time_point since;
    std::vector<int> members;
    std::vector<PendingTensor*> tensors;  // pending
  };

  [[nodiscard]] bool insert(const Tensor& tensor);
  void add(Next& next, const Tensor& tensor, bool fits);
  void announce_again();
  void forget(const PendingTensor& tensor);
  void look_ahead() noexcept;

  const int rank_;
  const std::vector<int> everybody_;
  mutable std::mutex mutex_;
  OperationMap<Tensor> pending_;           // by the names in their requests
  OperationMap<Tensor>::node_type spare_;  // of the last that was removed, for the next
  std::vector<Tensor> unannounced_;
  std::exception_ptr closed_;
  std::uint64_t order_ = 0;
  std::uint64_t observed_ = 0;
  std::uint32_t segment_ = 0;
  std::optional<Replay> replay_;
  bool stopped_ = false;
  Turn turn_;                           // keeps its memory
  std::atomic<bool> committed_{false};  // the turn
  std::atomic<bool> ready_{false};      // written with the mutex
};

}  // namespace hvd
