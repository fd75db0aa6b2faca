// What a store's client and server say to each other, each in one frame. docs/protocol.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <hvd/core/wire.hpp>

#include "store/store_limits.hpp"

namespace hvd {

inline constexpr std::string_view kStoreLabel = "store";
inline constexpr std::size_t kMaxStorePrefix = 160;  ///< "job/epoch/" before a client's key
inline constexpr std::size_t kMaxStoreMessage = kMaxStoreValue + 1024;

enum class StoreVerb : std::uint8_t { set = 1, get = 2, wait = 3 };

struct StoreRequest {
  std::uint32_t id = 0;  ///< the reply carries it; a client has one request open at a time
  StoreVerb verb = StoreVerb::get;
  std::string key;
  Bytes value;  ///< set only
};

enum class StoreOutcome : std::uint8_t {
  done = 1,     ///< the value was set
  value = 2,    ///< here it is
  missing = 3,  ///< nobody has set the key; never the answer to a wait
  full = 4,     ///< the server holds as much as it is willing to
};

struct StoreReply {
  std::uint32_t id = 0;
  StoreOutcome outcome = StoreOutcome::done;
  Bytes value;  ///< with `StoreOutcome::value` only
};

[[nodiscard]] Bytes encode(const StoreRequest& request);
[[nodiscard]] Bytes encode(const StoreReply& reply);
/// Throw Errc::protocol.
[[nodiscard]] StoreRequest decode_store_request(std::span<const std::byte> bytes);
[[nodiscard]] StoreReply decode_store_reply(std::span<const std::byte> bytes);

}  // namespace hvd
