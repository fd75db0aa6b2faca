// Ways for ranks that were started by somebody else to find a store of their own.
#pragma once

#include <memory>
#include <string_view>

#include <hvd/core/config.hpp>
#include <hvd/core/event_loop.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/store.hpp>

namespace hvd {

struct Meeting {
  std::unique_ptr<StoreServer> server;  ///< on rank 0
  std::shared_ptr<Store> store;
  Secret secret;  ///< what the peers share; empty on one host
};

/// Rank 0 serves the store at `config.store_address` and the others look for it there. `secret` may
/// be empty when all ranks are on one host, which is then reached by a Unix socket only. Throws
/// Errc::unauthenticated naming HVD_SECRET_FILE when they are not, Errc::timeout, Errc::resource.
[[nodiscard]] Meeting meet_at_rank_0(EventLoop& loop, const Config& config, const Secret& secret,
                                     Deadline deadline);

/// Rank 0 serves a store and leaves its address at `key` of the `board`, a store of somebody else
/// that is slow, or small, or open; with a fresh secret for the job unless there is a `secret`.
[[nodiscard]] Meeting meet_over_board(EventLoop& loop, const Config& config, Store& board,
                                      std::string_view key, const Secret& secret,
                                      Deadline deadline);

/// What tells the meetings of one user's ranks apart: the same on all ranks of one job, epoch and
/// generation.
[[nodiscard]] std::string meeting_name(const Config& config);

}  // namespace hvd
