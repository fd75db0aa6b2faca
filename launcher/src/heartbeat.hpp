// Signs of life over a stream that a network may silently cut.
#pragma once

#include <chrono>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// How long the other side has been silent. Pure. Time in which this process itself was late (it
/// was stopped, the machine paused) is not held against the other side.
class Silence {
 public:
  explicit Silence(Clock::time_point now) : heard_(now), looked_(now) {}

  void heard(Clock::time_point now) noexcept { heard_ = now; }
  /// To be called every `interval`; whether there was nothing for more than `limit`.
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
  /// Below the library's own 1.8 s, so that a host that is gone is named, and not a rank on it.
  static constexpr std::chrono::milliseconds kLimit{1'200};

  explicit Heartbeat(boost::asio::io_context& io) : timer_(io), silence_(Clock::now()) {}

  /// Calls `beat` at every interval, and `on_silence` once the other side was silent for `kLimit`.
  void start(std::function<void()> beat, std::function<void()> on_silence);
  void heard() noexcept;
  /// The other side will be silent until it is heard again.
  void expect_silence() noexcept { excused_ = true; }
  void stop();

 private:
  void tick();

  boost::asio::steady_timer timer_;
  Silence silence_;
  bool excused_ = false;
  std::function<void()> beat_;
  std::function<void()> on_silence_;
};

}  // namespace hvd::launcher
