// Ranks with a control channel. Each has a loop and records the messages that it has received.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/control_channel.hpp>

#include "expect_error.hpp"
#include "net/blocking_io.hpp"

namespace hvd::test {

/// Records messages and checks that they arrive on the loop thread.
class Recorder final : public ControlChannel::Listener {
 public:
  explicit Recorder(EventLoop& loop) : loop_(loop) {}

  void on_message(const std::vector<int>& from, std::span<const std::byte> message) override {
    EXPECT_TRUE(loop_.on_loop_thread());
    const std::lock_guard lock(mutex_);
    for (const int rank : from) {
      EXPECT_TRUE(lost_[rank].empty()) << "a message after the end";
      messages_[rank].emplace_back(message.begin(), message.end());
    }
    changed_.notify_all();
  }
  void on_lost(int peer, const std::string& cause) override {
    EXPECT_TRUE(loop_.on_loop_thread());
    const std::lock_guard lock(mutex_);
    lost_[peer].push_back(cause);
    changed_.notify_all();
  }

  std::vector<Bytes> wait_messages(int from, std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_until(lock, soon(), [&] { return messages_[from].size() >= count; }));
    return messages_[from];
  }
  std::vector<std::string> wait_lost(int peer) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_until(lock, soon(), [&] { return !lost_[peer].empty(); }));
    return lost_[peer];
  }
  std::vector<std::string> lost(int peer) {
    const std::lock_guard lock(mutex_);
    return lost_[peer];
  }

 private:
  EventLoop& loop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::vector<Bytes>> messages_;
  std::map<int, std::vector<std::string>> lost_;
};

struct Rank {
  Rank(Store& store, int rank, int size)
      : network(loop, Bootstrap(store, rank, size, soon()), {"job", 0, rank, {}}, ""),
        recorder(loop) {}

  /// A job of up to 256 ranks is a star without `fanout`.
  void open(int rank, int size, int fanout = 0) {
    channel = make_control_channel(loop, network, rank, size, fanout, soon());
  }
  void start() {
    loop.run_sync([this] { channel->start(recorder); });
  }
  void send(int to, const Bytes& message) { send(std::vector<int>{to}, message); }
  void send(const std::vector<int>& to, const Bytes& message) {
    loop.run_sync([&] { channel->send(to, message); });
  }
  void close() {
    loop.run_sync([this] { channel->close(); });
  }

  EventLoop loop;
  PeerNetwork network;
  Recorder recorder;
  std::unique_ptr<ControlChannel> channel;
};

inline void write_raw(int fd, std::span<const std::byte> bytes) {
  const net::Interrupt never;
  ASSERT_TRUE(net::write_all(fd, bytes, soon(), never));
}

}  // namespace hvd::test
