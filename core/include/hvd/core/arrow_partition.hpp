// The part of a table that a rank was handed as Arrow IPC files. docs/spark.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd {

/// A file in Arrow's IPC file format. Reading it is Arrow's work: `arrow::io::MemoryMappedFile` and
/// `arrow::ipc::RecordBatchFileReader` open it by its path.
struct ArrowFile {
  std::string path;  ///< good in this process and in its children, while they run
  std::int64_t rows = 0;
};

/// The rows of this rank. Those of all ranks together are the table, each row once; the shares
/// differ by a few rows, and with fewer rows than ranks some are empty.
struct ArrowPartition {
  std::vector<ArrowFile> files;

  [[nodiscard]] std::int64_t rows() const noexcept;
  /// What `HVD_ARROW_PARTITION` says; nothing when this program was not started with a table.
  /// Throws Errc::invalid_argument quoting the line that is no "rows path".
  [[nodiscard]] static std::optional<ArrowPartition> of_this_rank();
};

}  // namespace hvd
