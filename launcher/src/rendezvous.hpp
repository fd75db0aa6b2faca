// What the ranks of a job meet in: its id, its secret, the store hvdrun serves, and a port for
// programs that read torch's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/store.hpp>

#include "rank_environment.hpp"

namespace hvd::launcher {

/// A TCP port of this host that nobody else is given while this object lives, though one process
/// may listen on it: bound, not listening, with SO_REUSEADDR. Throws LaunchError (71).
class ReservedPort {
 public:
  ReservedPort();
  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

 private:
  UniqueFd socket_;
  std::uint16_t number_ = 0;
};

/// Starts a thread: create it after the agents, which are forked.
class JobRendezvous {
 public:
  JobRendezvous();
  [[nodiscard]] JobIdentity identity() const;
  [[nodiscard]] const Secret& secret() const noexcept { return secret_; }

 private:
  std::string id_;
  Secret secret_ = Secret::random();
  ReservedPort port_;
  EventLoop loop_;
  StoreServer store_;
};

}  // namespace hvd::launcher
