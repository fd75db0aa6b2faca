// Asks NVML on a thread of its own, since a driver may be slow or hang.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/types.hpp>

#include "agent/nvml.hpp"

namespace hvd::launcher {

/// Only the thread that runs `io` may use and destroy it.
class GpuWatch {
 public:
  /// The time that `look` waits for the driver. hvdrun waits longer than this for an answer.
  static constexpr std::chrono::milliseconds kPatience{250};
  /// The age from which an earlier result is no longer used.
  static constexpr std::chrono::milliseconds kFresh{5'000};

  explicit GpuWatch(boost::asio::io_context& io);
  /// Waits at most `kPatience` for a driver that hangs. A call that does not return is abandoned
  /// and ends with the process.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  using OnSeen = std::function<void(std::span<const GpuState>)>;
  /// Calls `on_seen` exactly once. Where NVML is missing, it does so at once and without GPUs.
  /// Otherwise it passes the present state of the GPUs, or after `kPatience` the last known state.
  void look(OnSeen on_seen);

 private:
  struct Desk;

  void begin();
  void seen(std::vector<GpuState> gpus);
  void answer();

  boost::asio::io_context& io_;
  boost::asio::steady_timer patience_;
  bool begun_ = false;
  std::shared_ptr<Desk> desk_;  ///< shared with the thread; null where NVML is missing
  std::thread thread_;
  std::vector<OnSeen> waiting_;
  std::vector<GpuState> last_;
  Clock::time_point last_at_{};
};

}  // namespace hvd::launcher
