// Declares the small key-value store through which the ranks of a job find each other.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/types.hpp>

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

/// Connects to the store at `address`, "tcp:host:port". Throws Errc::timeout, Errc::peer_lost. A
/// program with LibTorch gives `core` such a function as its client of torchrun's store.
using ConnectAgentStore = std::shared_ptr<Store> (*)(const std::string& address, Deadline deadline);

/// Provides the client for the whole process. <hvd/torch.hpp> calls it before `main`. Any thread
/// may call it. Returns true.
bool provide_agent_store(ConnectAgentStore connect) noexcept;

/// Returns the client that was provided, or null.
[[nodiscard]] ConnectAgentStore agent_store() noexcept;

}  // namespace hvd
