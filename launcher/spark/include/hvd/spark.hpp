// Declares the input and the result of a program that HvdDistributor of hvd_spark starts. The
// functions do not need `init`. docs/how-to/spark.md is the guide.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

/// The largest result, in bytes. There is a limit because Spark's driver holds the result in
/// memory.
inline constexpr std::size_t kMaxResult = std::size_t{512} << 20;

/// Writes `bytes` to the descriptor `HVD_RESULT_FD`, for the process that started this rank. That
/// process reads the result when the job has succeeded; a later result replaces an earlier one.
/// Returns false and does nothing when the variable is not set; `HvdDistributor` sets it for rank 0
/// only. One thread at a time may call it. Throws Errc::invalid_argument when there are more than
/// `kMaxResult` bytes or when `HVD_RESULT_FD` is not such a descriptor, and Errc::resource when
/// there is no memory for the result; then an earlier result is lost.
bool set_result(std::span<const std::byte> bytes);
/// Writes text in JSON, from which hvd_spark makes a Python object. The text is not checked here.
bool set_result(std::string_view json);

/// A file in Arrow's IPC file format. Arrow reads it: `arrow::io::MemoryMappedFile` and
/// `arrow::ipc::RecordBatchFileReader` open it by its path.
struct ArrowFile {
  std::string path;  ///< valid in this process and in its children, while they run
  std::int64_t rows = 0;
};

/// The rows of this rank in the table that was passed to `run_on`. Each row of the table is in the
/// share of one rank. The shares differ by a few rows, and when there are fewer rows than ranks,
/// some shares are empty.
struct ArrowPartition {
  std::vector<ArrowFile> files;

  [[nodiscard]] std::int64_t rows() const noexcept;
  /// Reads `HVD_ARROW_PARTITION`, which has a line "rows path" per file. Returns nothing when this
  /// program was not started with a table. Throws Errc::invalid_argument, which quotes the line,
  /// when a line has another form.
  [[nodiscard]] static std::optional<ArrowPartition> of_this_rank();
};

}  // namespace hvd

#endif
