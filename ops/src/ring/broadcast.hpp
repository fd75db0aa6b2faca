// One rank's bytes to every rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

namespace hvd {

/// `size` bytes from the root's `source` to the others' `destination`; the root's is not touched.
/// Small messages go down a binomial tree, large ones in segments along a chain, where every rank
/// passes one segment on while it takes the next.
void broadcast_bytes(Transport& transport, const std::byte* source, std::byte* destination,
                     std::size_t size, int root, Deadline deadline);

}  // namespace hvd
