// Signs of life over a stream whose network may be cut without a word.
#pragma once

#include <chrono>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// Measures how long the other side has been silent. Pure. Time in which this process itself was
/// late (it was stopped, the machine paused) is not held against the other side.
class Silence {
 public:
  explicit Silence(Clock::time_point now) : heard_(now), looked_(now) {}

  void heard(Clock::time_point now) noexcept { heard_ = now; }
  /// To be called every `interval`. Tells whether nothing was heard for more than `limit`.
  [[nodiscard]] bool too_long(Clock::time_point now, std::chrono::milliseconds interval,
                              std::chrono::milliseconds limit) noexcept;

 private:
  Clock::time_point heard_;
  Clock::time_point looked_;
};

/// Used on the thread that runs `io`.
class Heartbeat {
 public:
  static constexpr std::chrono::milliseconds kInterval{200};

  /// How long the other side may be silent when hosts may for `host_timeout`, 2 s or more. A little
  /// less, since ranks wait for the whole of it: a lost host is named before ranks of it are.
  [[nodiscard]] static constexpr std::chrono::milliseconds limit(
      std::chrono::milliseconds host_timeout) noexcept {
    return host_timeout - 3 * kInterval;
  }

  explicit Heartbeat(boost::asio::io_context& io) : timer_(io), silence_(Clock::now()) {}

  /// Calls `beat` at every interval, and `on_silence` once the other side was silent for `limit`.
  void start(std::chrono::milliseconds limit, std::function<void()> beat,
             std::function<void()> on_silence);
  void heard() noexcept;
  /// The other side will be silent until it is heard again.
  void expect_silence() noexcept { excused_ = true; }
  void stop();

 private:
  void tick();

  boost::asio::steady_timer timer_;
  Silence silence_;
  std::chrono::milliseconds limit_{0};
  bool excused_ = false;
  std::function<void()> beat_;
  std::function<void()> on_silence_;
};

}  // namespace hvd::launcher
