// Sends heartbeats over a stream, because a network may fail without ending the stream.
#pragma once

#include <chrono>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// Measures how long the other side has been silent, without counting the time in which this
/// process itself was late (because it was stopped, or the machine was suspended).
class Silence {
 public:
  explicit Silence(Clock::time_point now) : heard_(now), looked_(now) {}

  void heard(Clock::time_point now) noexcept { heard_ = now; }
  /// Must be called every `interval`. Returns whether nothing was heard for more than `limit`.
  [[nodiscard]] bool too_long(Clock::time_point now, std::chrono::milliseconds interval,
                              std::chrono::milliseconds limit) noexcept;

 private:
  Clock::time_point heard_;
  Clock::time_point looked_;
};

/// Only the thread that runs `io` uses it.
class LinkHeartbeat {
 public:
  static constexpr std::chrono::milliseconds kInterval{200};

  /// Returns how long the other side may be silent for a `host_timeout` of 2 s or more. It is a
  /// little less, since ranks wait for the whole timeout, so that hvdrun reports the lost host
  /// before its ranks do.
  [[nodiscard]] static constexpr std::chrono::milliseconds limit(
      std::chrono::milliseconds host_timeout) noexcept {
    return host_timeout - 3 * kInterval;
  }

  /// Returns how long hvdrun may be silent for an agent with ranks. It is a little more, so that
  /// the ranks first report the lost host themselves. Agents do not notice the silence at the same
  /// time. If one killed its ranks first, ranks on other hosts would blame these.
  [[nodiscard]] static constexpr std::chrono::milliseconds limit_with_ranks(
      std::chrono::milliseconds host_timeout) noexcept {
    return host_timeout + 5 * kInterval;
  }

  explicit LinkHeartbeat(boost::asio::io_context& io) : timer_(io), silence_(Clock::now()) {}

  /// Calls `beat` at every interval, and `on_silence` once the other side was silent for `limit`.
  void start(std::chrono::milliseconds limit, std::function<void()> beat,
             std::function<void()> on_silence);
  void set_limit(std::chrono::milliseconds limit) noexcept { limit_ = limit; }
  void heard() noexcept;
  /// Excuses the other side's silence until it is heard again.
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
