// A table in Parquet files, and which of its rows are for training and which for validation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <hvd/estimator/columns.hpp>
#include <hvd/estimator/store.hpp>

namespace hvd {

class ParquetFiles;  // src/parquet_files.hpp

/// The files are listed and their footers read by `open`, by every rank for itself; rows are read
/// by `BatchReader`. Cheap to copy; any thread.
class ParquetSource {
 public:
  struct Column {
    std::string name;
    std::string type;  ///< as Arrow writes it: "list<element: float>"
  };

  /// One file, or a folder: all `*.parquet` in it and below, sorted by path, but for names that
  /// begin with '_' or '.'. Partition columns that are only in folders' names (`day=1/`) are not
  /// read. Throws as `EstimatorStore::open`; Errc::invalid_argument when the folder has none in it;
  /// Errc::protocol naming a file that is not Parquet, or damaged; Errc::resource.
  [[nodiscard]] static ParquetSource open(const std::string& uri,
                                          const StorageOptions& storage_options = {});

  [[nodiscard]] const std::string& uri() const noexcept;
  [[nodiscard]] std::int64_t rows() const noexcept;
  /// URIs, sorted: the order in which rows are numbered.
  [[nodiscard]] const std::vector<std::string>& files() const noexcept;
  /// Rows of each row group, in that order.
  [[nodiscard]] std::vector<std::int64_t> row_groups() const;
  /// Of the first file.
  [[nodiscard]] std::vector<Column> schema() const;
  /// Every file has these columns with types that are taken and can fill their shapes; else throws
  /// Errc::invalid_argument naming the file, the column and what it is.
  void require(const Columns& columns) const;

  [[nodiscard]] const ParquetFiles& parquet() const noexcept { return *parquet_; }

 private:
  explicit ParquetSource(std::shared_ptr<const ParquetFiles> parquet)
      : parquet_(std::move(parquet)) {}

  std::shared_ptr<const ParquetFiles> parquet_;
};

/// Which rows to validate with: at most one of the two.
struct Validation {
  double fraction = 0;      ///< of all rows, in [0, 1): drawn by a hash of seed and row number
  std::string column = {};  ///< bool, or a number: true, or above 0, are the rows to validate with
};

/// Some rows of a source. Known on every rank alike; a bit per row of memory where a column chose
/// them.
class Selection {
 public:
  [[nodiscard]] static Selection all(const ParquetSource& source);

  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t rows_of_group(std::size_t group) const;
  /// By the row's number in the source.
  [[nodiscard]] bool contains(std::int64_t row) const;

 private:
  struct State;
  friend std::pair<Selection, Selection> split(const ParquetSource&, const Validation&,
                                               std::uint64_t);
  explicit Selection(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

/// The rows for training and those for validation; every row is in one of them. Reads at most the
/// validation column, all of it on every rank. Throws Errc::invalid_argument: a fraction outside
/// [0, 1), both given, a column that is missing, neither bool nor a number, or null in a row; and
/// what `BatchReader::next` throws.
[[nodiscard]] std::pair<Selection, Selection> split(const ParquetSource& source,
                                                    const Validation& validation,
                                                    std::uint64_t seed = 0);

struct WriteParquetOptions {
  std::int64_t rows_per_group = 1024;
  bool fixed_size_lists = false;  ///< else lists, as Spark writes them
  StorageOptions storage_options = {};
};

/// One file, as a whole or not at all (`EstimatorStore::write`). All tensors have the same first
/// dimension, the rows; [rows] is a column of values, [rows, …] one of lists of all that is in a
/// row. float16/32/64, the integers and bool. Throws Errc::invalid_argument, Errc::resource.
void write_parquet(const std::string& uri, const std::vector<std::string>& names,
                   const std::vector<torch::Tensor>& tensors,
                   const WriteParquetOptions& options = {});

}  // namespace hvd
