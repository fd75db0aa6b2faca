// Lets a rank of a process group receive from whichever rank sends first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <hvd/core/work.hpp>

namespace hvd::python {

/// The engine's messages have a known sender. So senders announce their messages in the store of
/// the group, once some rank has asked for it; before that a message costs nothing.
class AnySource {
 public:
  AnySource(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  ~AnySource() { stop(); }
  AnySource(const AnySource&) = delete;
  AnySource& operator=(const AnySource&) = delete;

  /// Ends the thread that waits for others to ask.
  void stop() noexcept;

  struct Message {
    int from = -1;
    std::uint64_t number = 0;  ///< counts the messages of this sender to this rank with this tag
  };
  /// Says that this rank sends a message, whose work ends when it was received.
  void sends(int to, int tag, std::uint64_t number, const Work& work);
  /// Returns the next announced message to this rank, or one without sender when `timeout` passes.
  [[nodiscard]] Message next(int tag, std::chrono::milliseconds timeout);

 private:
  struct Sent {
    int to = -1;
    int tag = 0;
    std::uint64_t number = 0;
    Work work;
  };
  void watch();
  void announce(const Sent& sent);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;

  std::mutex mutex_;  // guards what a sender needs
  c10::intrusive_ptr<c10d::Store> sender_store_;
  bool asked_ = false;
  bool ends_ = false;
  std::vector<Sent> sent_;  // before anybody asked
  std::thread watcher_;     // from the first message on, until somebody asks

  /// Threads that wait for one tag receive one after the other.
  struct Receiver {
    std::timed_mutex turn;
    std::int64_t read = 0;  ///< announcements
  };
  Message read(Receiver& receiver, int tag, c10d::Store& store, Deadline deadline) const;

  std::mutex receivers_mutex_;  // guards what follows, and is not held while a thread waits
  bool asks_ = false;
  std::map<int, Receiver> receivers_;  // by tag
  // A client of a store lets one thread wait at a time, so each thread that waits has its own.
  std::vector<c10::intrusive_ptr<c10d::Store>> idle_stores_;
};

/// A receive whose sender is found by the thread that waits.
class AnySourceWork final : public c10d::Work {
 public:
  struct Received {
    int from = -1;
    c10::intrusive_ptr<c10d::Work> work;  ///< null when there is no sender yet
  };
  using Start = std::function<Received(std::chrono::milliseconds)>;
  AnySourceWork(int rank, std::chrono::milliseconds timeout, std::vector<at::Tensor> results,
                Start start);

  bool isCompleted() override;
  bool isSuccess() const override { return started_.work && started_.work->isSuccess(); }
  int sourceRank() const override { return started_.from; }
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;

 private:
  bool start(std::chrono::milliseconds timeout);

  std::chrono::milliseconds timeout_;
  std::vector<at::Tensor> results_;
  Start start_;
  Received started_;
};

}  // namespace hvd::python
