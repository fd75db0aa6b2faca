// Composes the environments of the processes of one call of hvd::spawn, and serves the store in
// which they meet.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/spawn.hpp>

#include "plan/plan.hpp"
#include "plan/rank_environment.hpp"
#include "supervise/rendezvous.hpp"

namespace hvd::launcher {

/// It must live as long as the processes, and be made on a thread that blocks all signals.
class SpawnEnvironment {
 public:
  /// `call` distinguishes several calls of one program. Throws LaunchError, and
  /// Errc::invalid_argument, Errc::resource and Errc::unauthenticated.
  SpawnEnvironment(int nprocs, const SpawnOptions& options, std::size_t call);

  /// Returns the global rank of the first process that this node starts.
  [[nodiscard]] int first_rank() const noexcept { return first_rank_; }
  /// Returns the whole environment of one of the processes, except the variable of hvd::spawn
  /// itself. The process inherits the descriptors that the environment names.
  [[nodiscard]] Variables variables(int local_rank) const;

 private:
  void meet_here(const std::string& job);
  void meet_at_node_0(const SpawnOptions& options, const std::string& job);

  Plan plan_;
  int first_rank_ = 0;
  Variables common_;
  UniqueFd secret_;
  std::optional<Rendezvous> rendezvous_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<StoreServer> store_;
};

}  // namespace hvd::launcher
