// Implements the coordination protocol of one rank: which messages it sends, and how it acts on
// those that it receives. It does no I/O: it gets the time as an argument, and acts only through
// `Actions`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

#include "net/tree_routes.hpp"
#include "policy/fault_detector.hpp"
#include "policy/messages.hpp"
#include "policy/negotiator.hpp"
#include "policy/schedule_learner.hpp"
#include "policy/straggler.hpp"

namespace hvd::detail {

class Protocol {
 public:
  struct Settings {
    int rank = 0;
    int size = 1;
    int fanout = 0;  ///< of the control tree, see `TreeRoutes`
    std::size_t fusion_threshold = 0;
    int freeze_after = 0;  ///< identical periods; 0: the ranks always negotiate
    FaultDetector::Settings detector;
    Clock::duration stall_warn{};   ///< 0: off
    Clock::duration stall_abort{};  ///< 0: off
  };

  /// The protocol calls it from inside its methods, in order.
  class Actions {
   public:
    virtual ~Actions() = default;
    /// Sends the message to each of these ranks.
    virtual void send(const std::vector<int>& to, const Message& message) = 0;
    /// Runs the batch next in the order of collectives. This rank is a member of its set.
    virtual void run(const FusedBatch& batch) = 0;
    virtual void carry_out(const Rejection& rejection) = 0;
    virtual void carry_out(const SetAdded& added) = 0;
    virtual void carry_out(const SetRemoved& removed) = 0;
    virtual void carry_out(const AllJoined& joined) = 0;
    /// Replays the plan after the batches so far.
    virtual void carry_out(const Freeze& freeze) = 0;
    /// Begins nothing more of the plan. Returns the last sequence number begun; 0 means none.
    virtual std::uint64_t stop_replay() = 0;
    /// Takes back the collectives that not all members have begun, and announces their operations
    /// again through `submitted`.
    virtual void resume(const std::vector<std::uint64_t>& begun) = 0;
    virtual void stalled(const Stall& stall) = 0;
    /// This rank has decided that the job has failed, and why. The caller sends the verdict to the
    /// `followers` of this rank as an Abort.
    virtual void failed(const Verdict& verdict) = 0;
    /// Another rank has reached a verdict.
    virtual void aborted(const Abort& message) = 0;
    /// Every rank has requested the shutdown.
    virtual void shutdown_acknowledged() = 0;
    /// Rank 0 has found this; `news` is true only there, when users should hear of it.
    virtual void slowest(const Slowest& slowest, bool news) = 0;
  };

  Protocol(const Settings& settings, Actions& actions, Clock::time_point now);

  // These report events on this rank.
  void submitted(std::vector<Announcement> operations, Clock::time_point now);
  void batch_done(Clock::time_point now);
  /// Reports that the frozen schedule does not hold a submitted operation, or holds it back.
  void thaw_wanted(Clock::time_point now);
  void collective_failed(Errc code, int culprit, const std::string& cause, Clock::time_point now);
  /// Reports that this rank cannot carry out a decision of rank 0. From then on it announces
  /// nothing and carries out no decision, until the job ends.
  void refused(const std::string& cause, Clock::time_point now);
  void abort(const std::string& reason, Clock::time_point now);
  void shutdown(Clock::time_point now);
  /// This rank leaves the job without an agreement. Nothing is sent or carried out after this.
  void disconnected() noexcept { over_ = true; }
  /// The caller calls it at every heartbeat interval, with the blocked times of this rank.
  void tick(const BlockedTimes& own, Clock::time_point now);

  // This reports a message that other ranks have sent, on rank 0 perhaps several the same one.
  void received(const std::vector<int>& from, std::span<const std::byte> bytes,
                Clock::time_point now);
  void lost(int peer, const std::string& cause, Clock::time_point now);
  /// Passes on what `FaultDetector::host_answered` needs about a neighbour. The caller calls it
  /// after every tick.
  void host_answered(int neighbour, Clock::time_point at);

  /// Returns the ranks that this one has a control stream with and watches.
  [[nodiscard]] const std::vector<int>& neighbours() const noexcept { return neighbours_; }
  /// Returns the ranks to which this one sends its verdict: rank 0 to all, a relay to its children,
  /// which pass it on.
  [[nodiscard]] std::vector<int> followers() const;

  /// Only rank 0 calls it. It takes effect with the next batch, and with the next schedule that is
  /// learned.
  void set_bucket_sizes(const BucketSizes& sizes);

 private:
  friend struct StateReader;  // tests/explore reads and copies the whole state
  enum class Mode { negotiating, frozen, thawing };

  using Ranks = std::vector<int>;  // one, unless the message is for rank 0
  void handle(const Ranks& from, Submitted& message, Clock::time_point now);
  void handle(const Ranks& from, const ShutdownRequested& message, Clock::time_point now);
  void handle(const Ranks& from, const Suspicion& message, Clock::time_point now);
  void handle(const Ranks& from, Schedule& message, Clock::time_point now);
  void handle(const Ranks& from, const ShutdownAcknowledged& message, Clock::time_point now);
  void handle(const Ranks& from, const Abort& message, Clock::time_point now);
  void handle(const Ranks& from, const Heartbeat& message, Clock::time_point now);
  void handle(const Ranks& from, const ThawRequest& message, Clock::time_point now);
  void handle(const Ranks& from, const Stopped& message, Clock::time_point now);
  void handle(const Ranks& from, const Thaw& message, Clock::time_point now);
  void handle(const Ranks& from, const Resume& message, Clock::time_point now);
  void handle(const Ranks& from, const PeerLost& message, Clock::time_point now);

  // Only rank 0 calls these.
  void pump(Clock::time_point now);
  void hand_out(const std::vector<Agreement>& agreements);
  [[nodiscard]] std::optional<Freeze> try_to_freeze();
  [[nodiscard]] FusedBatch batch_for(int rank, const FusedTensors& tensors) const;
  void begin_thaw(Clock::time_point now);
  void stopped(int rank, std::uint64_t sequence, Clock::time_point now);
  void finish_thaw(Clock::time_point now);
  void recall_groups();
  void watch_stalls(Clock::time_point now);
  void found(const Slowest& slowest, bool news);

  void carry_out(const Decision& decision);
  void stop(std::uint32_t epoch, Clock::time_point now);
  void resume(const Resume& message, Clock::time_point now);
  void suspect(Errc code, int rank, const std::string& cause, Clock::time_point now);
  void accuse(int peer, const std::string& cause, Clock::time_point now);
  void judge(Clock::time_point now);
  void judge_below(Clock::time_point now);
  [[nodiscard]] bool leads() const noexcept { return settings_.rank == 0; }
  [[nodiscard]] bool relays(int peer) const;

  const Settings settings_;
  const TreeRoutes routes_;
  const int parent_;                   // -1 on rank 0
  const std::vector<int> children_;    // none unless this is rank 0 or a relay
  const std::vector<int> neighbours_;  // parent and children
  Actions& actions_;
  FaultDetector detector_;      // watches the parent; on rank 0, the children
  FaultDetector below_;         // on a relay, it watches the children for rank 0
  bool reported_loss_ = false;  // on a relay: rank 0 knows of a lost child
  bool over_ = false;           // failed, or all ranks have shut down
  bool refused_ = false;        // this rank has refused a decision of rank 0
  std::uint32_t epoch_ = 0;     // times frozen or resumed
  Mode mode_ = Mode::negotiating;
  bool leaving_ = false;               // this rank has requested the shutdown
  std::map<int, BlockedTimes> times_;  // by child, of it and the ranks below it
  Slowest slowest_;

  // Only rank 0 uses these.
  Negotiator negotiator_;
  ScheduleLearner learner_;
  std::size_t in_flight_ = 0;  // batches decided and not done on this rank
  FrozenSchedule plan_;
  std::vector<bool> reported_;        // by rank, during a thaw
  std::size_t reports_ = 0;           // ranks of `reported_`
  std::vector<std::uint64_t> begun_;  // by rank, during a thaw
  Clock::time_point stalls_reported_;
  SlowestNews news_;
};

}  // namespace hvd::detail
