// A small key-value store that ranks meet in: set once, wait with a deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/types.hpp>
#include <hvd/core/wire.hpp>

namespace hvd {

/// Keys are up to 256 bytes of printable text, values up to 1 MiB. Calls block the caller, never
/// the loop thread, and may come from one thread at a time. They throw Errc::timeout naming the
/// key, Errc::peer_lost when the server is gone.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) = 0;
  [[nodiscard]] virtual std::optional<Bytes> get(std::string_view key, Deadline deadline) = 0;
  /// Returns the value as soon as somebody has set the key.
  [[nodiscard]] virtual Bytes wait(std::string_view key, Deadline deadline) = 0;
};

/// In-process; threads that share one pointer to it share the keys. Any thread.
[[nodiscard]] std::shared_ptr<Store> make_hash_store();

/// Client of a `StoreServer`. Connects and authenticates before it returns, retrying until
/// `deadline` while nobody listens. Keys are prefixed with job and epoch.
[[nodiscard]] std::shared_ptr<Store> connect_store(const std::string& address,
                                                   const Identity& identity, Deadline deadline);

/// The PMIx server of the launcher as a store; null when this build or this process has none.
[[nodiscard]] std::shared_ptr<Store> connect_pmix_store(const Config& config);

/// Serves keys to every process that proves the job's secret. Starts listening in the constructor.
class StoreServer {
 public:
  /// `listen_address` as in address.hpp: "unix:@" picks a fresh abstract name, "tcp:HOST:0" a
  /// free port. `loop` outlives the server.
  StoreServer(EventLoop& loop, const std::string& listen_address, const Identity& identity);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// What clients connect to.
  [[nodiscard]] const std::string& address() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd
