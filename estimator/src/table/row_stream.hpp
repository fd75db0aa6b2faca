// Reads the rows of some slices of row groups in small pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/estimator/columns.hpp>
#include <hvd/estimator/parquet_source.hpp>

#include "table/parquet_files.hpp"
#include "table/share_plan.hpp"

namespace hvd::detail {

/// Rows as tensors.
struct Rows {
  std::vector<torch::Tensor> features;
  std::vector<torch::Tensor> labels;
  std::int64_t count = 0;
};

/// Holds one open file, a buffer for each of its columns, and one piece. Throws what
/// `BatchReader::next` throws.
class RowStream {
 public:
  RowStream(ParquetSource source, Columns columns, Selection selection,
            std::vector<GroupSlice> slices, arrow::MemoryPool* pool = arrow::default_memory_pool());

  /// Returns at least one row, or nothing at the end.
  [[nodiscard]] std::optional<Rows> next();

  /// Returns tensors with no rows. Reads the first row of the source to learn the other dimensions.
  [[nodiscard]] static Rows no_rows(const ParquetSource& source, const Columns& columns);

 private:
  void begin_slice();
  [[nodiscard]] Rows rows_of(const arrow::RecordBatch& batch, std::int64_t first_row,
                             const std::vector<std::int64_t>& wanted) const;
  void require_same_shapes(const Rows& rows, std::int64_t first_row);

  ParquetSource source_;
  Columns columns_;
  Selection selection_;
  std::vector<GroupSlice> slices_;
  arrow::MemoryPool* pool_;
  std::vector<std::string> names_;  ///< the columns that are read, each once

  std::size_t slice_ = 0;
  bool begun_ = false;               ///< whether the current slice has been started
  std::int64_t row_ = 0;             ///< the next row of its row group
  std::int64_t chosen_ = 0;          ///< how many rows before that row are selected
  std::optional<std::size_t> file_;  ///< the open file
  std::unique_ptr<ParquetReader> reader_;
  std::vector<std::vector<std::int64_t>> shapes_;  ///< the shape of a row in each tensor
};

}  // namespace hvd::detail
