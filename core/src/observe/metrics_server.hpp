// Serves `Stats` over HTTP: GET /metrics for Prometheus and GET /stats.json.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/stats.hpp>

namespace hvd::observe {

struct MetricsOptions {
  std::uint16_t port = 0;             ///< 0 lets the kernel choose
  std::string address = "127.0.0.1";  ///< numeric; there is no authentication
  MetricLabels labels{};
};

/// Runs on the loop thread. A connection gets one answer within `kDeadline` or is closed; while
/// `kMaxConnections` are open, further ones wait in the kernel.
class MetricsServer {
 public:
  static constexpr int kMaxConnections = 16;
  static constexpr std::chrono::seconds kDeadline{2};
  static constexpr std::uint32_t kMaxHeaderBytes = 8192;

  /// The server listens when the constructor returns. `stats` is called on the loop thread and must
  /// not block. `loop` outlives the server. Throws Errc::invalid_argument for an address that is
  /// not numeric, Errc::resource naming address and port when it cannot listen there.
  MetricsServer(EventLoop& loop, MetricsOptions options, std::function<Stats()> stats);
  /// Closes every connection; `stats` is not called afterwards.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::observe
