// A store for ranks that can already talk to each other, as those of an MPI communicator can.
#pragma once

#include <memory>
#include <string>

#include <hvd/core/config.hpp>
#include <hvd/core/secret.hpp>

namespace hvd {

/// Serves a store from this process to whoever is told its address and the fresh secret, on a
/// thread of its own that sleeps until somebody asks. The others call `connect_store`.
class StoreHost {
 public:
  /// Listens on a Unix socket when all ranks are on `one_host`, else on the interface that
  /// `config.interfaces` picks. Rank and size of `config` do not matter. Throws Errc::resource and
  /// Errc::invalid_argument.
  StoreHost(const Config& config, bool one_host);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  [[nodiscard]] const std::string& address() const noexcept;
  [[nodiscard]] const Secret& secret() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
