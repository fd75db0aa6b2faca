// What a program that hvd_spark's HvdDistributor starts gets from it and hands back to it. Neither
// function needs `init`. docs/how-to/spark.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

/// The largest result, in bytes: it becomes one value in another process's memory.
inline constexpr std::size_t kMaxResult = std::size_t{512} << 20;

/// Hands `bytes` to whoever started this rank and asked for a result (`HVD_RESULT_FD`), who gets
/// them when the job has ended well; of several results the last one counts. Returns false and does
/// nothing when nobody asked: `HvdDistributor` asks rank 0 only. Any thread, not concurrently.
/// Throws Errc::invalid_argument above `kMaxResult` and when `HVD_RESULT_FD` is no such descriptor,
/// Errc::resource when there is no memory for the result; an earlier result is gone then.
bool set_result(std::span<const std::byte> bytes);
/// The same with text in JSON, which arrives as what it describes. The text is not checked here.
bool set_result(std::string_view json);

/// A file in Arrow's IPC file format. Arrow reads it: `arrow::io::MemoryMappedFile` and
/// `arrow::ipc::RecordBatchFileReader` open it by its path.
struct ArrowFile {
  std::string path;  ///< good in this process and in its children, while they run
  std::int64_t rows = 0;
};

/// The rows of this rank in the table that `run_on` was given. Each row of the table is in the
/// share of one rank; the shares differ by a few rows, and with fewer rows than ranks some are
/// empty.
struct ArrowPartition {
  std::vector<ArrowFile> files;

  [[nodiscard]] std::int64_t rows() const noexcept;
  /// Reads `HVD_ARROW_PARTITION`, which has a line "rows path" per file. Returns nothing when this
  /// program was not started with a table. Throws Errc::invalid_argument quoting a line that is
  /// something else.
  [[nodiscard]] static std::optional<ArrowPartition> of_this_rank();
};

}  // namespace hvd
