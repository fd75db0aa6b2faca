// Declares one rank's connection to the job: store, loop thread, peers and topology.
#pragma once

#include <memory>

#include <hvd/core/config.hpp>
#include <hvd/core/internal/bootstrap.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/peer_network.hpp>
#include <hvd/core/store.hpp>
#include <hvd/core/topology.hpp>

namespace hvd {

class Session {
 public:
  /// Collective. Finds the other ranks as `config` says, or in `store` when it is given (tests run
  /// ranks as threads around one hash store). Throws within `config.start_timeout`.
  explicit Session(Config config, std::shared_ptr<Store> store = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const Config& config() const noexcept;
  [[nodiscard]] const Topology& topology() const noexcept;
  [[nodiscard]] EventLoop& loop() noexcept;
  [[nodiscard]] PeerNetwork& network() noexcept;
  /// Returns the object through which the ranks agree before the context runs. Only the thread that
  /// made the session may call it.
  [[nodiscard]] const Bootstrap& bootstrap() const noexcept;
  /// Ends the watch of `Config::interrupt_fd`. Throws Errc::aborted when it was readable before.
  void started();
  /// Returns the latest moment at which start-up may still be going on.
  [[nodiscard]] Deadline start_deadline() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
