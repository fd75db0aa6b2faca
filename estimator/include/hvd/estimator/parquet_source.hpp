// Declares a table in Parquet files, and selects which of its rows are for training and which for
// validation.
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

namespace detail {
class ParquetFiles;
}  // namespace detail

/// A table in Parquet files. `open` lists the files and reads their footers; every rank calls it by
/// itself. `BatchReader` reads the rows. Copies are cheap. Any thread may use it.
class ParquetSource {
 public:
  struct Column {
    std::string name;
    std::string type;  ///< as Arrow writes it: "list<element: float>"
  };

  /// Opens one file, or all `*.parquet` files in a folder and its subfolders, sorted by path. Files
  /// and folders whose names begin with '_' or '.' are skipped. Partition columns that exist only
  /// in the names of folders (`day=1/`) are not read. Throws what `EstimatorStore::open` throws;
  /// Errc::invalid_argument when the folder has no such file; Errc::protocol, naming the file, when
  /// it is damaged or not Parquet; and Errc::resource when the storage fails.
  [[nodiscard]] static ParquetSource open(const std::string& uri,
                                          const StorageOptions& storage_options = {});

  [[nodiscard]] const std::string& uri() const noexcept;
  [[nodiscard]] std::int64_t rows() const noexcept;
  /// Returns the sorted URIs. Rows are numbered in this order.
  [[nodiscard]] const std::vector<std::string>& files() const noexcept;
  /// Returns the number of rows of each row group, file after file.
  [[nodiscard]] std::vector<std::int64_t> row_groups() const;
  /// Returns the columns of the first file.
  [[nodiscard]] std::vector<Column> schema() const;
  /// Checks that every file has these columns, with types that can be read and that fill their
  /// shapes, and that a label column is of integers in all files or in none. Throws
  /// Errc::invalid_argument, naming the file, the column and its type.
  void require(const Columns& columns) const;

 private:
  friend class detail::ParquetFiles;
  explicit ParquetSource(std::shared_ptr<const detail::ParquetFiles> parquet)
      : parquet_(std::move(parquet)) {}

  std::shared_ptr<const detail::ParquetFiles> parquet_;
};

/// Selects the rows for validation. At most one of the two is set.
struct Validation {
  double fraction =
      0;  ///< the share of all rows, in [0, 1), drawn by a hash of seed and row number
  std::string column = {};  ///< a column of bool or numbers; it selects rows with true or above 0
};

/// Selected rows of a source, the same on every rank. A selection by column takes one bit per row.
class Selection {
 public:
  [[nodiscard]] static Selection all(const ParquetSource& source);

  [[nodiscard]] std::int64_t rows() const noexcept;
  [[nodiscard]] std::int64_t rows_of_group(std::size_t group) const;
  /// `row` is the row's number in the source.
  [[nodiscard]] bool contains(std::int64_t row) const;

 private:
  struct State;
  friend std::pair<Selection, Selection> split(const ParquetSource&, const Validation&,
                                               std::uint64_t);
  explicit Selection(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

/// Returns the rows for training and those for validation; every row is in exactly one of them.
/// Each rank reads the whole validation column, and nothing else. Throws Errc::invalid_argument for
/// a fraction outside [0, 1), a fraction and a column together, and a column that is missing,
/// neither bool nor a number, or null in a row; and what `BatchReader::next` throws.
[[nodiscard]] std::pair<Selection, Selection> split(const ParquetSource& source,
                                                    const Validation& validation,
                                                    std::uint64_t seed = 0);

struct WriteParquetOptions {
  std::int64_t rows_per_group = 1024;
  bool fixed_size_lists = false;  ///< otherwise lists of any length, as Spark writes them
  StorageOptions storage_options = {};
};

/// Writes one file, completely or not at all (`EstimatorStore::write`). The first dimension of
/// every tensor counts the rows. A tensor of shape [rows] becomes a column of values, one of shape
/// [rows, …] a column of flat lists. Types are float16/32/64, the integers and bool. Throws
/// Errc::invalid_argument for tensors and names that do not fit, and Errc::resource when the file
/// cannot be written.
void write_parquet(const std::string& uri, const std::vector<std::string>& names,
                   const std::vector<torch::Tensor>& tensors,
                   const WriteParquetOptions& options = {});

}  // namespace hvd
