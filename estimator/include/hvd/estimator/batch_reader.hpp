// Reads one rank's share of an epoch in batches and holds one window of rows at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/types.h>

#include <hvd/estimator/columns.hpp>
#include <hvd/estimator/parquet_source.hpp>

namespace hvd {

struct BatchReaderOptions {
  std::int64_t batch_size = 32;  ///< the greatest number of rows of this rank in a batch
  int rank = 0;
  int size = 1;
  std::uint64_t seed = 0;  ///< all options but `rank` must be the same on every rank
  std::size_t epoch = 0;
  bool shuffle = true;
  /// The number of rows that are held and shuffled at a time, which is at least one batch.
  std::int64_t window_rows = 16384;
};

struct Batch {
  std::vector<torch::Tensor> features;  ///< the model's inputs, [rows, …] each
  std::vector<torch::Tensor> labels;    ///< one per label column, [rows, …]
  std::int64_t rows = 0;                ///< 0 when this rank has no rows left but another rank has
  std::int64_t rows_of_all_ranks = 0;   ///< in this step; never 0
};

/// The rows and their order depend only on the options, the selection and the sizes of the row
/// groups. The row groups are shuffled. Their chosen rows, one group after another, are divided
/// into one contiguous share for each rank; the first shares may be one row longer. Each rank
/// shuffles the rows inside its window. So exactly one rank reads each chosen row, once. Reading is
/// not collective. One thread at a time may use the reader.
class BatchReader {
 public:
  /// Throws what `validate` and `ParquetSource::require` throw, and Errc::invalid_argument for
  /// options out of range. Reads no rows, except that a rank without rows reads one to learn the
  /// shapes of its batches.
  BatchReader(ParquetSource source, Columns columns, Selection selection,
              const BatchReaderOptions& options);
  ~BatchReader();
  BatchReader(BatchReader&&) noexcept;
  BatchReader& operator=(BatchReader&&) noexcept;

  /// Returns the next batch, and nothing after `steps()` batches. The batches of a rank have nearly
  /// equally many rows. Throws Errc::invalid_argument, naming file, column and row, for a null or a
  /// list of another length; Errc::resource for a file that is missing and a server that does not
  /// answer; Errc::protocol for a file that is damaged or was replaced after `open`. After an error
  /// the reader cannot be used any more.
  [[nodiscard]] std::optional<Batch> next();

  /// Returns the number of batches of the epoch, which is the same on every rank.
  [[nodiscard]] std::int64_t steps() const noexcept;
  /// Return the number of rows of this rank, and of all ranks, in the epoch.
  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t rows_of_all_ranks() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
