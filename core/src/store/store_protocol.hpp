// Defines the limits of every store, and the requests of a store's clients and the replies of its
// server, each in one frame. docs/internals/protocol.md has the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <hvd/core/internal/wire.hpp>

namespace hvd::detail {

inline constexpr std::size_t kMaxStoreKey = 256;
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;
/// The size of all values that one reply carries.
inline constexpr std::size_t kMaxStoreReply = std::size_t{16} << 20;

/// Throw Errc::invalid_argument.
void check_store_key(std::string_view key);
void check_store_value(std::string_view key, std::size_t size);

inline constexpr std::string_view kStoreLabel = "store";
inline constexpr std::size_t kMaxStorePrefix = 160;  ///< "job/epoch/" before a client's key
inline constexpr std::size_t kMaxStoreMessage = kMaxStoreValue + 1024;  ///< a request

enum class StoreVerb : std::uint8_t { set = 1, get = 2, wait = 3, wait_all = 4 };

struct StoreRequest {
  std::uint32_t id = 0;  ///< the reply carries it; a client has one request open at a time
  StoreVerb verb = StoreVerb::get;
  std::string key;          ///< for wait_all, the part before the numbers 0, 1, …
  Bytes value;              ///< set only
  std::uint32_t count = 0;  ///< wait_all only: how many keys
};

enum class StoreOutcome : std::uint8_t {
  done = 1,     ///< the value was set
  value = 2,    ///< the reply has the value
  missing = 3,  ///< the key is not set; never the reply to a wait
  full = 4,     ///< the server reached its limit, or the values exceed a reply
};

struct StoreReply {
  std::uint32_t id = 0;
  StoreOutcome outcome = StoreOutcome::done;
  Bytes value;  ///< with `StoreOutcome::value` only; to wait_all: each value as a blob
};

[[nodiscard]] Bytes encode(const StoreRequest& request);
[[nodiscard]] Bytes encode(const StoreReply& reply);
/// Throw Errc::protocol.
[[nodiscard]] StoreRequest decode_store_request(std::span<const std::byte> bytes);
[[nodiscard]] StoreReply decode_store_reply(std::span<const std::byte> bytes);

}  // namespace hvd::detail
