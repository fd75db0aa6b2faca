// Writes files so that they exist completely or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include <hvd/core/internal/wire.hpp>

namespace hvd::detail {

/// Writes a temporary file beside `path`, flushes it to the disk, and renames it. When one of these
/// steps fails, it removes the temporary file and throws Errc::resource.
void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// Reads a whole file. Throws Errc::resource when it cannot.
[[nodiscard]] Bytes read_file(const std::filesystem::path& path);

}  // namespace hvd::detail
