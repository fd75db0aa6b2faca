// A file that is there as a whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include <hvd/core/wire.hpp>

namespace hvd {

/// Writes a temporary file beside `path`, flushes it, and renames it. Throws Errc::resource, with
/// nothing left behind.
void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// Throws Errc::resource.
[[nodiscard]] Bytes read_file(const std::filesystem::path& path);

}  // namespace hvd
