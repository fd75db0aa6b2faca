// Connects ranks that hvdrun has not started to a store, which rank 0 serves.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <hvd/core/config.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/store.hpp>

namespace hvd::detail {

/// Returns what tells this job from those of other generations, and of other ranks, of the same
/// launcher.
[[nodiscard]] std::string job_in_launch(const Config& config);

struct ConnectedStore {
  std::unique_ptr<StoreServer> server;  ///< on rank 0
  std::shared_ptr<Store> store;
  Secret secret;  ///< shared by the peers; empty on one host
};

/// Rank 0 serves the store at `config.store_address` and the others look for it there. `secret` may
/// be empty when all ranks are on one host, which is then reached by a Unix socket only. Throws
/// Errc::unauthenticated naming HVD_SECRET_FILE when they are not, Errc::timeout, Errc::resource.
[[nodiscard]] ConnectedStore connect_hosted_store(EventLoop& loop, const Config& config,
                                                  const Secret& secret, Deadline deadline);

/// Rank 0 serves a store and shares its address through `launcher_store`, a launcher's store that
/// is slow, small or open, with a fresh secret for the job unless `secret` is given. `label` is as
/// in Bootstrap.
[[nodiscard]] ConnectedStore connect_announced_store(EventLoop& loop, const Config& config,
                                                     Store& launcher_store, std::string_view label,
                                                     const Secret& secret, Deadline deadline);

}  // namespace hvd::detail
