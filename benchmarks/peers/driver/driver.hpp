// Declares the main program of a peer, which measures every size in turn, prints a table and writes
// JSON at the end.
#pragma once

#include "library.hpp"
#include "options.hpp"

namespace hvd::peers {

/// Collective. Rank 0 prints a line per size and writes `options.json`, with the keys of
/// hvd_bench's rows. Returns true when all results were right. Throws std::runtime_error when the
/// file cannot be written.
[[nodiscard]] bool run(Library& library, const Options& options);

}  // namespace hvd::peers
