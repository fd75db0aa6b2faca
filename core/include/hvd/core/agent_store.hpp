// The seam through which a program with LibTorch gives `core` a client of torchrun's store.
#pragma once

#include <memory>
#include <string>

#include <hvd/core/store.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Connects to the store at `address`, "tcp:host:port". Throws Errc::timeout, Errc::peer_lost.
using ConnectAgentStore = std::shared_ptr<Store> (*)(const std::string& address, Deadline deadline);

/// Says that this program has such a client. Of the whole process, like what it is linked with, and
/// called before `main` by whoever includes <hvd/torch.hpp>. Any thread. Returns true.
bool provide_agent_store(ConnectAgentStore connect) noexcept;

/// What was provided; null when nothing was.
[[nodiscard]] ConnectAgentStore agent_store() noexcept;

}  // namespace hvd
