// Makes contexts for callers that determine the ranks themselves, as from an MPI communicator.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/context.hpp>
#include <hvd/core/store.hpp>

namespace hvd::detail {

/// Makes the MPI backend of a session like `make_mpi_backend`. Collective.
using MakeMpiBackend = std::function<std::unique_ptr<Backend>(Session&)>;

/// Does what `make_context(config, store)` does, with `make_mpi` where `config.backend` is mpi.
[[nodiscard]] std::unique_ptr<Context> compose_context(const Config& config,
                                                       std::shared_ptr<Store> store,
                                                       const MakeMpiBackend& make_mpi);

/// Does what `init(config)` does, with a context that `make` makes from the settings.
void init_default_context(const Config& config,
                          const std::function<std::unique_ptr<Context>(const Config&)>& make);

}  // namespace hvd::detail
