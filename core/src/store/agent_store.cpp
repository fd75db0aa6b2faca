#include <atomic>

#include <hvd/core/agent_store.hpp>

namespace hvd {
namespace {

// Initialised before any code runs: others are set during static initialisation.
constinit std::atomic<ConnectAgentStore> provided{nullptr};

}  // namespace

bool provide_agent_store(ConnectAgentStore connect) noexcept {
  provided.store(connect);
  return true;
}

ConnectAgentStore agent_store() noexcept { return provided.load(); }

}  // namespace hvd
