// Reaches the store of torchrun's agent through LibTorch's own client (c10d::TCPStore).
#pragma once

#include <memory>
#include <string>

#include <hvd/core/store.hpp>

namespace hvd {

/// Connects to the store that listens at `address`, "tcp:host:port". One thread at a time may use
/// the result. Keys are not prefixed. Throws Errc::timeout when no store answers before `deadline`.
[[nodiscard]] std::shared_ptr<Store> connect_agent_store(const std::string& address,
                                                         Deadline deadline);

namespace detail {

/// Registers the client with `core` before main() begins, so that torchrun can start a program that
/// includes this header on several hosts.
inline const bool kAgentStoreIsProvided = provide_agent_store(&connect_agent_store);

}  // namespace detail
}  // namespace hvd
