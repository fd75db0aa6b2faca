// The rows of some slices of row groups, one small piece after another.
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

#include "parquet_files.hpp"
#include "share_plan.hpp"

namespace hvd {

/// Some rows as tensors.
struct Rows {
  std::vector<torch::Tensor> features;
  std::vector<torch::Tensor> labels;
  std::int64_t count = 0;
};

/// Holds one open file, and of it a buffer per column and the piece at hand. Throws as
/// `BatchReader::next`.
class RowStream {
 public:
  RowStream(ParquetSource source, Columns columns, Selection selection,
            std::vector<GroupSlice> slices, arrow::MemoryPool* pool = arrow::default_memory_pool());

  /// At least one row; nothing at the end.
  [[nodiscard]] std::optional<Rows> next();

  /// None, of the shapes that rows have: learnt from the first row of the source.
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
  std::vector<std::string> names_;  ///< of all columns, each once

  std::size_t slice_ = 0;
  bool begun_ = false;               ///< the slice at hand
  std::int64_t row_ = 0;             ///< of its row group, to come next
  std::int64_t chosen_ = 0;          ///< before that row
  std::optional<std::size_t> file_;  ///< that is open
  std::unique_ptr<ParquetReader> reader_;
  std::vector<std::vector<std::int64_t>> shapes_;  ///< of a row, in each tensor
};

}  // namespace hvd
