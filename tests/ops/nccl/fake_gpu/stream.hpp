// A fake stream: a queue of tasks and the thread that runs them, in order and as late as it may.
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
  /// Runs what is queued, then ends.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Queues a task, which runs on the stream's thread once somebody has asked for it.
  Ticket push(std::function<void()> task);
  /// Everything queued so far.
  [[nodiscard]] Ticket tail() const;
  /// Whether all up to `ticket` has run; lets it run when it has not.
  [[nodiscard]] bool query(Ticket ticket);
  /// Waits for it.
  void synchronize(Ticket ticket);
  /// The same, no longer than that; whether it has run.
  [[nodiscard]] bool synchronize_for(Ticket ticket, std::chrono::milliseconds patience);

 private:
  void work();

  int device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  Ticket pushed_ = 0;
  Ticket allowed_ = 0;  ///< somebody waits for these
  Ticket ran_ = 0;
  bool ending_ = false;
  std::thread worker_;
};

}  // namespace hvd::test::fake_gpu
