// One rank's bytes to every rank.
#pragma once

#include <cstddef>

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

namespace hvd {

/// `size` bytes from the root's `data` to the others'. Small messages go down a binomial tree,
/// large ones in segments along a chain, where every rank passes one segment on while it takes the
/// next.
void broadcast_bytes(Transport& transport, std::byte* data, std::size_t size, int root,
                     Deadline deadline);

}  // namespace hvd
