// Declares the store server, its client and the client of a PMIx server.
#pragma once

#include <memory>
#include <string>

#include <hvd/core/config.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/poll.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/store.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Makes a client of a `StoreServer`. Connects and authenticates before it returns, retrying until
/// `deadline` while nobody listens. Keys are prefixed with job and epoch. Once `interrupt` is
/// raised, waits of this call and of the client throw Errc::aborted.
[[nodiscard]] std::shared_ptr<Store> connect_store(
    const std::string& address, const Identity& identity, Deadline deadline,
    std::shared_ptr<const WakeEvent> interrupt = std::make_shared<WakeEvent>());

/// Makes a store of the launcher's PMIx server. Returns null when this build or this process has
/// none.
[[nodiscard]] std::shared_ptr<Store> connect_pmix_store(const Config& config);

/// Serves keys to every process that proves the job's secret. It listens from the constructor on.
class StoreServer {
 public:
  /// `listen_address` is a text as in address.hpp: "unix:@" picks a fresh abstract name,
  /// "tcp:HOST:0" a free port. `loop` outlives the server.
  StoreServer(EventLoop& loop, const std::string& listen_address, const Identity& identity);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Returns the address to which clients connect.
  [[nodiscard]] const std::string& address() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Serves a store to ranks that can already talk to each other, like those of an MPI communicator.
/// This process serves it on a thread of its own. The caller sends the address and the fresh secret
/// to the other ranks, which call `connect_store`.
class StoreHost {
 public:
  /// Listens on a Unix socket when all ranks are on `one_host`, else on the interface that
  /// `config.interfaces` picks. Rank and size of `config` do not matter. Throws Errc::resource and
  /// Errc::invalid_argument.
  StoreHost(const Config& config, bool one_host);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  [[nodiscard]] const std::string& address() const noexcept;
  [[nodiscard]] const Secret& secret() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
