// The store of torchrun's agent, through LibTorch's own client (c10d::TCPStore).
#pragma once

#include <memory>
#include <string>

#include <hvd/core/agent_store.hpp>

namespace hvd {

/// Connects to the store that listens at `address`, "tcp:host:port". One thread at a time. Keys are
/// taken as they are. Throws Errc::timeout when nobody answers until `deadline`.
[[nodiscard]] std::shared_ptr<Store> connect_agent_store(const std::string& address,
                                                         Deadline deadline);

/// A program that includes this header can be started by torchrun on several hosts.
inline const bool kSpeaksToTheAgent = provide_agent_store(&connect_agent_store);

}  // namespace hvd
