// Agrees with the other ranks on what runs next, and hands it to the executor.
//
// `Protocol` decides. The coordinator passes its messages and events between the control channel,
// the loop thread, the executor and the threads that submit. Only the loop thread uses the
// protocol; the tensor table, the process sets and the end state have mutexes.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <hvd/core/internal/control_channel.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/stats.hpp>
#include <hvd/core/work.hpp>

#include "engine/executor.hpp"
#include "engine/heartbeat_timer.hpp"
#include "engine/observer.hpp"
#include "engine/process_sets.hpp"
#include "engine/step_tuner.hpp"
#include "engine/tensor_table.hpp"
#include "observe/metrics_server.hpp"
#include "observe/report_server.hpp"
#include "policy/protocol.hpp"

namespace hvd::detail {

/// Returns the kind of an operation, and its name if it has one, for messages.
[[nodiscard]] std::string described(const Request& request);

class Coordinator : private ControlChannel::Listener,
                    private Protocol::Actions,
                    private Executor::Listener {
 public:
  /// `session` outlives this object. `channel` is null when the job is one rank. Without `fence`
  /// several ranks never freeze their schedule.
  Coordinator(Session& session, std::unique_ptr<ControlChannel> channel,
              std::vector<std::unique_ptr<Backend>> backends, std::unique_ptr<ReadyFence> fence);
  ~Coordinator() override;

  /// If no backend runs this operation, throws Errc::unsupported, or why the context has ended. Any
  /// thread may call it.
  void require_backend(const Request& request) const;
  /// Any thread may call it. The request is valid and named, and a backend runs it. Throws what
  /// `Context::submit` throws.
  [[nodiscard]] Work submit(Submission&& submission);
  /// Does what `submit` does and waits for the result. This thread runs the operation where it can.
  void submit_and_wait(Submission&& submission);
  /// Does what `submit` does, for all submissions or for none.
  [[nodiscard]] std::vector<Work> submit_all(std::vector<Submission> submissions);
  /// Tells the launcher that the ranks have agreed to stop. Any thread may call it.
  void stop_agreed();
  /// Does what `Context::shutdown` does. Any thread but the loop's may call it.
  void shutdown();
  /// Ends the executor thread, and this coordinator's work on the loop thread. Without an earlier
  /// `shutdown` the other ranks see this rank as lost. Any thread but the loop's may call it.
  void disconnect() noexcept;
  /// Does what `Context::abort` does. Any thread may call it.
  void abort(const std::string& reason) noexcept;
  /// Any thread may call it.
  [[nodiscard]] Observer& observer() noexcept { return observer_; }
  [[nodiscard]] const ProcessSets& process_sets() const noexcept { return sets_; }

 private:
  enum class End { none, shut_down, failed };

  // These implement ControlChannel::Listener.
  void on_message(const std::vector<int>& from, std::span<const std::byte> bytes) override;
  void on_lost(int peer, const std::string& cause) override;

  // These implement Protocol::Actions.
  void send(const std::vector<int>& to, const Message& message) override;
  void run(const FusedBatch& fused) override;
  void carry_out(const Rejection& rejection) override;
  void carry_out(const SetAdded& added) override;
  void carry_out(const SetRemoved& removed) override;
  void carry_out(const AllJoined& joined) override;
  void carry_out(const Freeze& freeze) override;
  std::uint64_t stop_replay() override;
  void resume(const std::vector<std::uint64_t>& begun) override;
  void stalled(const Stall& stall) override;
  void failed(const Verdict& verdict) override;
  void aborted(const Abort& message) override;
  void shutdown_acknowledged() override;
  void slowest(const Slowest& slowest, bool news) override;

  // These implement Executor::Listener.
  void turn_taken(const LocalBatch& batch, const SchedulePosition& position,
                  Clock::time_point now) override;
  void tensor_done(PendingTensor& tensor, std::exception_ptr error) override;
  void batch_done() override;
  void backend_failed(const Error& error) override;
  void waited(Clock::time_point begin, Clock::time_point end) override;
  void nothing_runs() override;
  void stopped() override;

  [[nodiscard]] std::shared_ptr<PendingTensor> accept(Submission&& submission);
  void serve_metrics();
  [[nodiscard]] RankReport report() const;
  void announce();
  [[nodiscard]] TensorTable::Next add(std::span<const std::shared_ptr<PendingTensor>> tensors);
  void want_thaw();
  void tune();
  void on_tick();
  void end(End how, std::exception_ptr error = nullptr);
  [[nodiscard]] std::exception_ptr end_error() const;
  void give_up(const Abort& message, bool is_own_verdict);
  void when_delivered(Clock::duration patience, std::function<void()> then);
  void refuse(const std::string& problem);
  [[nodiscard]] std::shared_ptr<PendingTensor> scheduled(const OperationKey& key);
  [[nodiscard]] Fault describe(const Verdict& verdict) const;

  Session& session_;
  const int rank_;
  const int size_;
  const Clock::time_point began_;
  std::unique_ptr<ControlChannel> channel_;
  Observer observer_;
  TensorTable table_;
  ProcessSets sets_;
  std::unique_ptr<StepTuner> tuner_;  // rank 0 with HVD_AUTOTUNE; else null
  // Only the loop thread uses these.
  Protocol protocol_;
  std::optional<std::uint64_t> held_back_before_;
  std::uint64_t submitted_before_ = 0;
  Clock::time_point held_back_since_;

  mutable std::mutex end_mutex_;
  std::condition_variable ended_;
  End end_ = End::none;
  std::exception_ptr error_;  // set with End::failed
  bool has_aborted_ = false;  // this rank has called `abort`
  bool others_know_ = false;  // after End::shut_down: the ranks below are no longer waited for
  // The first error of a backend. It counts when all ranks have shut down while collectives still
  // run, because rank 0 no longer decides which rank is to blame.
  std::exception_ptr backend_error_;
  std::optional<std::string> own_lack_;  // why a backend of this rank lacked a resource

  std::mutex shutdown_mutex_;
  bool shut_down_ = false;

  HeartbeatTimer timer_;
  std::optional<HeartbeatTimer> delivery_;           // of `when_delivered`
  std::unique_ptr<observe::MetricsServer> metrics_;  // HVD_METRICS_PORT; else null
  std::unique_ptr<observe::ReportServer> reports_;   // HVD_STATUS_FD; loop thread; else null
  std::shared_ptr<Executor> executor_;               // the user's works keep it alive
};

}  // namespace hvd::detail
