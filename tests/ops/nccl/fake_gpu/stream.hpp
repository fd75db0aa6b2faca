// A fake stream: a queue of tasks and the thread that runs them, in order and as late as allowed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace hvd::test::fake_gpu {

/// A position in a stream: the number of tasks that must have run.
using Ticket = std::uint64_t;

class Stream {
 public:
  explicit Stream(int device);
  /// Runs the queued tasks, then ends.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Queues a task. It runs on the stream's thread once another thread queries or waits for it,
  /// unless the device is broken by then.
  Ticket push(std::function<void()> task);
  /// Returns the position after everything queued so far.
  [[nodiscard]] Ticket tail() const;
  /// Returns whether all tasks up to `ticket` have run, and lets nothing run.
  [[nodiscard]] bool has_run(Ticket ticket) const;
  /// Returns whether all tasks up to `ticket` have run, and otherwise allows them to run.
  [[nodiscard]] bool query(Ticket ticket);
  /// Waits until all tasks up to `ticket` have run.
  void synchronize(Ticket ticket);
  /// Does the same for at most `patience`. Returns whether they have run.
  [[nodiscard]] bool synchronize_for(Ticket ticket, std::chrono::milliseconds patience);

 private:
  void work();

  int device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  Ticket pushed_ = 0;
  Ticket allowed_ = 0;  ///< tasks that may run, because a thread waits for them
  Ticket ran_ = 0;
  bool ending_ = false;
  std::thread worker_;
};

}  // namespace hvd::test::fake_gpu
