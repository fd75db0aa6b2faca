// What a rank says to the others and does about what they say. Pure: time comes in as an argument,
// everything goes out through `Actions`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

#include "coordinator/fault_detector.hpp"
#include "coordinator/messages.hpp"
#include "coordinator/negotiator.hpp"
#include "coordinator/schedule_learner.hpp"
#include "net/tree_routes.hpp"

namespace hvd {

class Protocol {
 public:
  struct Settings {
    int rank = 0;
    int size = 1;
    int group = 0;  ///< ranks of a group of the control tree, see `TreeRoutes`; 0: a star
    std::size_t fusion_threshold = 0;
    int freeze_after = 0;  ///< identical periods; 0: always negotiate
    FaultDetector::Settings detector;
    Clock::duration stall_warn{};   ///< 0: off
    Clock::duration stall_abort{};  ///< 0: off
  };

  /// Called from inside the protocol's methods, in order.
  class Actions {
   public:
    virtual ~Actions() = default;
    virtual void send(int to, const Message& message) = 0;
    /// Next in the order of collectives. This rank is a member of the batch's set.
    virtual void run(const Batch& batch) = 0;
    virtual void carry_out(const Rejection& rejection) = 0;
    virtual void carry_out(const SetAdded& added) = 0;
    virtual void carry_out(const SetRemoved& removed) = 0;
    virtual void carry_out(const AllJoined& joined) = 0;
    /// After the batches so far, the plan is replayed.
    virtual void carry_out(const Freeze& freeze) = 0;
    /// Begins nothing more of the plan; returns the last ticket begun, 0: none.
    virtual std::uint64_t stop_replay() = 0;
    /// Takes back what was not begun by all, and announces it again through `submitted`.
    virtual void resume(const std::vector<std::uint64_t>& begun) = 0;
    virtual void stalled(const Stall& stall) = 0;
    /// By this rank's own judgement, which its `followers` have to hear, by a Poison.
    virtual void failed(const Verdict& verdict) = 0;
    virtual void poisoned(const Poison& poison) = 0;  ///< by another's
    /// Everybody has left in peace.
    virtual void farewell() = 0;
  };

  Protocol(const Settings& settings, Actions& actions, Clock::time_point now);

  // What happened on this rank.
  void submitted(std::vector<Announcement> operations, Clock::time_point now);
  void batch_done(Clock::time_point now);
  /// Something was submitted that the frozen schedule does not hold, or is held back by it.
  void thaw_wanted(Clock::time_point now);
  void collective_failed(Errc code, int culprit, const std::string& cause, Clock::time_point now);
  void abort(const std::string& reason, Clock::time_point now);
  void goodbye(Clock::time_point now);
  /// To be called at every heartbeat interval.
  void tick(Clock::time_point now);

  // What came from elsewhere.
  void received(int from, std::span<const std::byte> bytes, Clock::time_point now);
  void lost(int peer, const std::string& cause, Clock::time_point now);

  /// Who takes over this rank's verdict: of rank 0 everybody, of a relay its members.
  [[nodiscard]] std::vector<int> followers() const;

  /// Rank 0: takes effect with the next batch, and with the next schedule that is learned.
  void set_bucket_sizes(const BucketSizes& sizes);

 private:
  enum class Mode { negotiating, frozen, thawing };

  void handle(int from, Submitted& message, Clock::time_point now);
  void handle(int from, const Goodbye& message, Clock::time_point now);
  void handle(int from, const Suspicion& message, Clock::time_point now);
  void handle(int from, Schedule& message, Clock::time_point now);
  void handle(int from, const Farewell& message, Clock::time_point now);
  void handle(int from, const Poison& message, Clock::time_point now);
  void handle(int from, const Heartbeat& message, Clock::time_point now);
  void handle(int from, const ThawRequest& message, Clock::time_point now);
  void handle(int from, const Stopped& message, Clock::time_point now);
  void handle(int from, const Thaw& message, Clock::time_point now);
  void handle(int from, const Resume& message, Clock::time_point now);
  void handle(int from, const Lost& message, Clock::time_point now);

  // Rank 0.
  void pump(Clock::time_point now);
  void hand_out(const std::vector<Agreement>& agreements);
  [[nodiscard]] std::optional<Freeze> try_to_freeze();
  [[nodiscard]] Batch batch_for(int rank, const FusedTensors& tensors) const;
  void begin_thaw(Clock::time_point now);
  void stopped(int rank, std::uint64_t ticket, Clock::time_point now);
  void finish_thaw(Clock::time_point now);
  void recall_groups();
  void watch_stalls(Clock::time_point now);

  void carry_out(const Decision& decision);
  void stop(std::uint32_t epoch, Clock::time_point now);
  void resume(const Resume& message, Clock::time_point now);
  void suspect(Errc code, int rank, const std::string& cause, Clock::time_point now);
  void accuse(int peer, const std::string& cause, Clock::time_point now);
  void judge(Clock::time_point now);
  void judge_members(Clock::time_point now);
  void send_to_all(const Message& message);
  [[nodiscard]] bool leads() const noexcept { return settings_.rank == 0; }
  [[nodiscard]] bool relays(int peer) const;

  const Settings settings_;
  const TreeRoutes routes_;
  const int parent_;                 // -1: this is rank 0
  const std::vector<int> children_;  // of rank 0: those it talks to itself; of a relay: its members
  Actions& actions_;
  FaultDetector detector_;   // of a relay: about rank 0
  FaultDetector members_;    // of a relay: about them, for rank 0
  bool told_ = false;        // of a relay: rank 0 knows of a loss
  bool over_ = false;        // failed, or said farewell
  std::uint32_t epoch_ = 0;  // times frozen or resumed
  Mode mode_ = Mode::negotiating;
  bool leaving_ = false;  // this rank has said goodbye

  // Rank 0.
  Negotiator negotiator_;
  ScheduleLearner learner_;
  std::size_t in_flight_ = 0;  // batches given out and not done here
  Plan plan_;
  std::vector<bool> reported_;        // thawing: by rank
  std::vector<std::uint64_t> begun_;  // thawing: by rank
  Clock::time_point stalls_reported_;
};

}  // namespace hvd
