// Agrees with the other ranks on what runs next, and hands it to the executor.
//
// The loop thread owns everything here but the tensor table and the end state, which are guarded.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hvd/core/control_channel.hpp>
#include <hvd/core/session.hpp>
#include <hvd/core/stats.hpp>
#include <hvd/core/work.hpp>

#include "coordinator/counters.hpp"
#include "coordinator/executor.hpp"
#include "coordinator/fault_detector.hpp"
#include "coordinator/heartbeat_timer.hpp"
#include "coordinator/messages.hpp"
#include "coordinator/negotiator.hpp"
#include "coordinator/tensor_table.hpp"

namespace hvd {

class Coordinator : private ControlChannel::Listener {
 public:
  /// `session` outlives it; `channel` is null when the job is one rank.
  Coordinator(Session& session, std::unique_ptr<ControlChannel> channel,
              std::vector<std::unique_ptr<Backend>> backends);
  ~Coordinator() override;

  /// Any thread. The request is valid and named. Throws as `Context::submit`.
  [[nodiscard]] Work submit(Submission submission);
  /// Any thread but the loop's. As `Context::shutdown`.
  void shutdown();
  /// Any thread but the loop's. Ends both threads' work for this coordinator; without a `shutdown`
  /// before it, the others see this rank as lost.
  void disconnect() noexcept;
  /// Any thread.
  void abort(const std::string& reason) noexcept;
  [[nodiscard]] Stats stats() const { return counters_.read(); }

 private:
  enum class End { none, farewell, poisoned };

  // ControlChannel::Listener
  void on_message(int from, std::span<const std::byte> bytes) override;
  void on_lost(int peer, const std::string& cause) override;

  // A message from `from`, by type.
  void handle(int from, Submitted& message);
  void handle(int from, const Goodbye& message);
  void handle(int from, const Suspicion& message);
  void handle(int from, Schedule& message);
  void handle(int from, const Farewell& message);
  void handle(int from, const Poison& message);
  void handle(int from, const Heartbeat& message);

  void announce();
  void pump();
  void carry_out(const Batch& batch);
  void carry_out(const Rejection& rejection);
  void batch_done();
  void on_tick();
  void report_stalls(Clock::time_point now);
  void judge(Clock::time_point now);
  void suspect(Errc code, int rank, const std::string& cause);
  void poison(Errc code, const Fault& fault);
  void tensor_done(PendingTensor& tensor, std::exception_ptr error);
  void fail_pending();
  void end(End how);
  void send(int to, const Message& message);
  void send_to_all(const Message& message);
  void send_encoded(int to, const Message& message, Bytes bytes);
  [[nodiscard]] bool leads() const noexcept { return rank_ == 0; }
  [[nodiscard]] Fault describe(const Verdict& verdict, Clock::time_point now) const;

  Session& session_;
  const int rank_;
  const int size_;
  const Clock::time_point began_;
  std::unique_ptr<ControlChannel> channel_;
  Counters counters_;
  TensorTable table_;

  // Loop thread.
  Negotiator negotiator_;  // rank 0 only
  FaultDetector detector_;
  std::size_t in_flight_ = 0;  // batches given to the executor and not done
  Clock::time_point stalls_reported_;

  mutable std::mutex end_mutex_;
  std::condition_variable ended_;
  End end_ = End::none;
  std::exception_ptr error_;  // set with End::poisoned

  std::mutex shutdown_mutex_;
  bool shut_down_ = false;

  HeartbeatTimer timer_;
  Executor executor_;
};

}  // namespace hvd
