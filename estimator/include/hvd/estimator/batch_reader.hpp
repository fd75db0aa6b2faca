// One rank's share of an epoch, batch by batch, without ever holding more than a window of it.
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
  std::int64_t batch_size = 32;  ///< rows of this rank, at most
  int rank = 0;
  int size = 1;
  std::uint64_t seed = 0;  ///< the same on every rank, like `epoch` and all else but `rank`
  std::size_t epoch = 0;
  bool shuffle = true;
  /// Rows that are held, and shuffled among each other, at a time; at least a batch.
  std::int64_t window_rows = 16384;
};

struct Batch {
  std::vector<torch::Tensor> features;  ///< the model's inputs, [rows, …] each
  std::vector<torch::Tensor> labels;    ///< one per label column, [rows, …]
  std::int64_t rows = 0;                ///< 0: this rank has none left, the others do
  std::int64_t rows_of_all_ranks = 0;   ///< in this step; never 0
};

/// Which rows come, and in which order, follows from the options, the selection and the row groups'
/// sizes alone: row groups are shuffled, the chosen rows of one after another are dealt out to the
/// ranks in equal parts (the first ones get one row more), and each rank shuffles inside its
/// window. So every chosen row is with one rank, once. Not collective; one thread at a time.
class BatchReader {
 public:
  /// Throws Errc::invalid_argument as `validate`, as `ParquetSource::require`, and for options out
  /// of range. Reads nothing but, on a rank that has no rows, one row for the shapes of its
  /// batches.
  BatchReader(ParquetSource source, Columns columns, Selection selection,
              const BatchReaderOptions& options);
  ~BatchReader();
  BatchReader(BatchReader&&) noexcept;
  BatchReader& operator=(BatchReader&&) noexcept;

  /// Nothing after `steps()` batches, which have nearly equally many of the rank's rows.
  /// Throws Errc::invalid_argument naming file, column and row (a null, a list of another length);
  /// Errc::resource (a file that vanished, a server that does not answer); Errc::protocol (a
  /// damaged file, or one that was replaced since `open`). After that the reader is of no more use.
  [[nodiscard]] std::optional<Batch> next();

  /// Batches until the end of the epoch, the same on every rank.
  [[nodiscard]] std::int64_t steps() const noexcept;
  /// Of this rank, and of all together, in the epoch.
  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t rows_of_all_ranks() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
