// What a user holds: one rank of one job.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hvd/core/backend.hpp>
#include <hvd/core/config.hpp>
#include <hvd/core/request.hpp>
#include <hvd/core/session.hpp>
#include <hvd/core/stats.hpp>
#include <hvd/core/topology.hpp>
#include <hvd/core/work.hpp>

namespace hvd {

/// Owns the session, the coordinator, the executor and the backends. Any thread may call any
/// method. Several contexts may live in one process.
class Context {
 public:
  /// Collective. Backends are asked in order; the first that supports an operation runs it, and
  /// every rank must pass the same list.
  Context(std::unique_ptr<Session> session, std::vector<std::unique_ptr<Backend>> backends);
  /// `shutdown()`, with its errors logged.
  ~Context();
  /// Leaves without a goodbye: the others see this rank as lost. For the end of a process that did
  /// not shut down; later calls throw Errc::shut_down.
  void disconnect() noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const Topology& topology() const noexcept;
  [[nodiscard]] int rank() const noexcept { return topology().rank; }
  [[nodiscard]] int size() const noexcept { return topology().size; }
  [[nodiscard]] const Config& config() const noexcept;

  /// Hands one operation to the coordinator and returns at once. Ranks may submit in any order;
  /// an empty name gets one from the order of unnamed calls of that kind.
  /// Throws invalid_argument, duplicate_name, shut_down, unsupported, and the sticky error of a
  /// poisoned context; everything else arrives through the `Work`.
  [[nodiscard]] Work submit(Submission submission);

  [[nodiscard]] Stats stats() const;

  /// Poisons the context on every rank: pending and later operations throw Errc::aborted with
  /// `reason` and this rank as the culprit. Does not block.
  void abort(const std::string& reason) noexcept;
  /// Waits until every rank has called it, at most `Config::shutdown_timeout`; operations that can
  /// no longer complete fail with Errc::shut_down. Later calls do nothing.
  void shutdown();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
