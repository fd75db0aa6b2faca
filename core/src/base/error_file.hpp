// Writes the file in which torchrun looks for the reason why a rank failed.
#pragma once

#include <string>
#include <string_view>

namespace hvd::detail {

/// Writes `message` to `path` as torch.distributed.elastic's error handler does (JSON, with the
/// time in seconds, by which torchrun finds the first cause). Does nothing when `path` is empty or
/// exists: the first error counts. A file that cannot be written is logged, and nothing is thrown.
void write_error_file(const std::string& path, std::string_view message) noexcept;

}  // namespace hvd::detail
