// How a context is composed, for callers that bring ranks of their own.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/context.hpp>

namespace hvd {

/// Makes the MPI backend of a session, as `make_mpi_backend` does. Collective.
using MakeMpiBackend = std::function<std::unique_ptr<Backend>(Session&)>;

/// As `make_context(config, store)`, with `make_mpi` where `config.backend` is mpi.
[[nodiscard]] std::unique_ptr<Context> compose_context(const Config& config,
                                                       std::shared_ptr<Store> store,
                                                       const MakeMpiBackend& make_mpi);

}  // namespace hvd
