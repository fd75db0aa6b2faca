// Copies by vector instructions.
#pragma once

#include <cstddef>

namespace hvd::detail {

/// Does what memcpy does, vector by vector. It is for cache lines that another core has written:
/// for those memcpy's `rep movsb`, which glibc uses above a few KiB, takes a fifth more time where
/// the cores share no cache. For lines that the other core only reads, memcpy is quicker.
void copy_vectors(std::byte* dst, const std::byte* src, std::size_t size);

}  // namespace hvd::detail
