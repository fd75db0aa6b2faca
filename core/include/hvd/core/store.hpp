// Declares the small key-value store through which the ranks of a job find each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/config.hpp>
#include <hvd/core/event_loop.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/types.hpp>
#include <hvd/core/wire.hpp>

namespace hvd {

/// Keys are up to 256 bytes of printable text, values up to 1 MiB. Calls block the caller, never
/// the loop thread, and may come from one thread at a time. They throw Errc::timeout naming the
/// key, and Errc::peer_lost when the server is gone.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) = 0;
  [[nodiscard]] virtual std::optional<Bytes> get(std::string_view key, Deadline deadline) = 0;
  /// Returns the value as soon as a process has set the key.
  [[nodiscard]] virtual Bytes wait(std::string_view key, Deadline deadline) = 0;
  /// Returns the values of the keys `prefix`0, `prefix`1, … up to `count` of them, as soon as all
  /// are set. Makes one request where the store can do it.
  [[nodiscard]] virtual std::vector<Bytes> wait_all(std::string_view prefix, int count,
                                                    Deadline deadline);
};

/// Makes a store within this process. Threads that share the pointer share the keys. Any thread may
/// call it.
[[nodiscard]] std::shared_ptr<Store> make_hash_store();

/// Makes a client of a `StoreServer`. Connects and authenticates before it returns, retrying until
/// `deadline` while nobody listens. Keys are prefixed with job and epoch.
[[nodiscard]] std::shared_ptr<Store> connect_store(const std::string& address,
                                                   const Identity& identity, Deadline deadline);

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

/// Connects to the store at `address`, "tcp:host:port". Throws Errc::timeout, Errc::peer_lost. A
/// program with LibTorch gives `core` such a function as its client of torchrun's store.
using ConnectAgentStore = std::shared_ptr<Store> (*)(const std::string& address, Deadline deadline);

/// Provides the client for the whole process. <hvd/torch.hpp> calls it before `main`. Any thread
/// may call it. Returns true.
bool provide_agent_store(ConnectAgentStore connect) noexcept;

/// Returns the client that was provided, or null.
[[nodiscard]] ConnectAgentStore agent_store() noexcept;

}  // namespace hvd
