// Makes a backend of the ranks of MPI_COMM_WORLD for each way to reduce host memory over MPI.
#pragma once

#include <memory>
#include <string>

#include "mpi/mpi_backend.hpp"
#include "mpi/mpi_transport.hpp"

namespace hvd::test {

enum class Way {
  collective,    ///< MPI's own collectives
  ring,          ///< hvd's ring over MPI's messages
  chosen,        ///< one or the other by size
  hierarchical,  ///< hosts of two ranks, with `chosen` within and between them
};

[[nodiscard]] std::string to_string(Way way);

struct WayOptions {
  detail::MpiOptions collective;
  detail::MpiTransportOptions ring;
};

/// Makes the backend. Collective.
[[nodiscard]] std::unique_ptr<Backend> make_backend(Way way, const WayOptions& options = {});

/// Makes only the transport.
[[nodiscard]] std::unique_ptr<detail::MpiTransport> make_transport(
    const detail::MpiTransportOptions& options = {});

[[nodiscard]] int world_rank();
[[nodiscard]] int world_size();

}  // namespace hvd::test
