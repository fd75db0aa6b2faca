// Tests the epochs of all ranks: complete, disjoint, in equal steps, and with at most one window in
// memory.
#include <algorithm>
#include <numeric>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>
#include <parquet/arrow/writer.h>

#include <hvd/estimator/batch_reader.hpp>

#include "folder.hpp"
#include "table/row_stream.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};
const Columns kColumns{.features = {"x"}, .labels = {"row"}, .input_shapes = {{1, 2}}};

/// Row r has the features [r, r + 0.5] and the label r. Every fifth row is for validation.
void write_rows(const std::string& path, std::int64_t first, std::int64_t count,
                std::int64_t rows_per_group) {
  const torch::Tensor row = torch::arange(first, first + count, torch::kInt64);
  const torch::Tensor x = row.to(torch::kFloat32).unsqueeze(1);
  write_parquet(path, {"x", "row", "held_out"},
                {torch::cat({x, x + 0.5}, 1), row, row.remainder(5) == 0},
                {.rows_per_group = rows_per_group});
}

using RowNumbers = std::vector<std::int64_t>;

RowNumbers numbers_of(const torch::Tensor& tensor) {
  const auto* const data = tensor.const_data_ptr<std::int64_t>();
  return {data, data + tensor.numel()};
}

struct Epoch {
  std::vector<RowNumbers> of_rank;  ///< in the order they came
  std::int64_t steps = 0;

  [[nodiscard]] RowNumbers sorted() const {
    RowNumbers all;
    for (const RowNumbers& rows : of_rank) all.insert(all.end(), rows.begin(), rows.end());
    std::sort(all.begin(), all.end());
    return all;
  }
};

/// Reads an epoch with all ranks and checks every batch.
Epoch read_epoch(const ParquetSource& source, const Selection& selection,
                 BatchReaderOptions options) {
  Epoch epoch;
  epoch.of_rank.resize(static_cast<std::size_t>(options.size));
  std::vector<std::int64_t> rows_of_step;
  std::vector<std::int64_t> told;
  for (int rank = 0; rank < options.size; ++rank) {
    options.rank = rank;
    BatchReader reader(source, kColumns, selection, options);
    epoch.steps = reader.steps();
    rows_of_step.resize(static_cast<std::size_t>(reader.steps()));
    told.resize(rows_of_step.size());
    RowNumbers& rows = epoch.of_rank[static_cast<std::size_t>(rank)];
    std::size_t step = 0;
    for (; auto batch = reader.next(); ++step) {
      EXPECT_EQ(batch->features.at(0).sizes(), (torch::IntArrayRef{batch->rows, 1, 2}));
      EXPECT_EQ(batch->labels.at(0).sizes(), (torch::IntArrayRef{batch->rows}));
      EXPECT_EQ(batch->features[0].scalar_type(), torch::kFloat32);
      EXPECT_LE(batch->rows, options.batch_size);
      const RowNumbers some = numbers_of(batch->labels[0]);
      const torch::Tensor x = batch->labels[0].to(torch::kFloat32).unsqueeze(1);
      EXPECT_TRUE(torch::equal(batch->features[0].flatten(1), torch::cat({x, x + 0.5}, 1)));
      rows.insert(rows.end(), some.begin(), some.end());
      rows_of_step.at(step) += batch->rows;
      told.at(step) = batch->rows_of_all_ranks;
    }
    EXPECT_EQ(static_cast<std::int64_t>(step), reader.steps());
    EXPECT_EQ(static_cast<std::int64_t>(rows.size()), reader.rows());
    EXPECT_EQ(reader.rows_of_all_ranks(), selection.rows());
    EXPECT_FALSE(reader.next());
  }
  EXPECT_EQ(rows_of_step, told);
  return epoch;
}

RowNumbers all_below(std::int64_t rows) {
  RowNumbers numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  return numbers;
}

/// An empty row group in the middle, which write_parquet does not make.
void write_with_an_empty_group(const std::string& path) {
  const auto schema = arrow::schema(
      {arrow::field("x", arrow::list(arrow::float32())), arrow::field("row", arrow::int64())});
  const auto sink = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  auto writer =
      parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(), sink).ValueOrDie();
  std::int64_t row = 0;
  for (const std::int64_t rows : {3, 0, 4}) {
    arrow::Int64Builder numbers;
    arrow::ListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::FloatBuilder>());
    auto& values = static_cast<arrow::FloatBuilder&>(*lists.value_builder());
    for (std::int64_t i = 0; i < rows; ++i, ++row) {
      ASSERT_TRUE(numbers.Append(row).ok() && lists.Append().ok());
      ASSERT_TRUE(values.Append(static_cast<float>(row)).ok() &&
                  values.Append(static_cast<float>(row) + 0.5F).ok());
    }
    const auto table =
        arrow::Table::Make(schema, {lists.Finish().ValueOrDie(), numbers.Finish().ValueOrDie()});
    ASSERT_TRUE(writer->NewRowGroup().ok());
    for (int column = 0; column < 2; ++column) {
      ASSERT_TRUE(writer->WriteColumnChunk(table->column(column)).ok());
    }
  }
  ASSERT_TRUE(writer->Close().ok() && sink->Close().ok());
}

TEST(BatchReader, ReadsEveryRowOnceAtAnyNumberOfRanks) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 50, 7);
  write_rows(folder / "b.parquet", 50, 0, 7);  // a partition without rows
  write_rows(folder / "c.parquet", 50, 1, 7);
  write_rows(folder / "d.parquet", 51, 1500, 1200);  // more than is decoded at a time
  const auto source = ParquetSource::open(folder.path().string());
  const Selection all = Selection::all(source);
  for (const int size : kSizes) {
    for (const std::int64_t window : {1, 40, 100000}) {
      SCOPED_TRACE(testing::Message() << size << " ranks, window " << window);
      const Epoch epoch = read_epoch(
          source, all, {.batch_size = 16, .size = size, .seed = 9, .window_rows = window});
      EXPECT_EQ(epoch.sorted(), all_below(1551));
      EXPECT_EQ(epoch.steps, (1551 / size + (1551 % size != 0 ? 1 : 0) + 15) / 16);
    }
  }
}

TEST(BatchReader, ReadsTrainingAndValidationRowsApart) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 1000, 64);
  const auto source = ParquetSource::open(folder.path().string());
  for (const Validation& validation :
       {Validation{.fraction = 0.1}, Validation{.column = "held_out"}}) {
    const auto [training, held_out] = split(source, validation, 1);
    for (const int size : kSizes) {
      RowNumbers rows = read_epoch(source, training, {.batch_size = 50, .size = size}).sorted();
      const RowNumbers others =
          read_epoch(source, held_out, {.batch_size = 8, .size = size}).sorted();
      EXPECT_FALSE(others.empty());
      for (const std::int64_t row : others) EXPECT_TRUE(held_out.contains(row));
      rows.insert(rows.end(), others.begin(), others.end());
      std::sort(rows.begin(), rows.end());
      EXPECT_EQ(rows, all_below(1000));
    }
  }
}

TEST(BatchReader, GivesRanksWithoutRowsEmptyBatches) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 3, 2);
  const auto source = ParquetSource::open(folder.path().string());
  const Epoch epoch = read_epoch(source, Selection::all(source), {.batch_size = 1, .size = 8});
  EXPECT_EQ(epoch.sorted(), all_below(3));
  EXPECT_EQ(epoch.steps, 1);
  EXPECT_EQ(read_epoch(source, Selection::all(source), {.batch_size = 1, .size = 2}).steps, 2);
}

TEST(BatchReader, OfNoRowsHasNoSteps) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 0, 2);
  const auto source = ParquetSource::open(folder.path().string());
  for (const int size : {1, 3}) {
    EXPECT_EQ(read_epoch(source, Selection::all(source), {.size = size}).steps, 0);
  }
}

TEST(BatchReader, PassesAnEmptyRowGroup) {
  const Folder folder;
  write_with_an_empty_group(folder / "a.parquet");
  const auto source = ParquetSource::open(folder.path().string());
  EXPECT_EQ(source.row_groups(), (std::vector<std::int64_t>{3, 0, 4}));
  for (const int size : kSizes) {
    const Epoch epoch = read_epoch(source, Selection::all(source), {.batch_size = 2, .size = size});
    EXPECT_EQ(epoch.sorted(), all_below(7));
  }
}

TEST(BatchReader, ShufflesBySeedAndEpochAndElseKeepsTheOrder) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 300, 32);
  const auto source = ParquetSource::open(folder.path().string());
  const Selection all = Selection::all(source);
  BatchReaderOptions options{.batch_size = 16, .size = 2, .seed = 4, .window_rows = 50};
  const auto order = [&] { return read_epoch(source, all, options).of_rank; };
  const auto first = order();
  EXPECT_EQ(order(), first);
  EXPECT_FALSE(std::is_sorted(first[0].begin(), first[0].end()));
  options.epoch = 1;
  EXPECT_NE(order(), first);
  options.epoch = 0;
  options.seed = 5;
  EXPECT_NE(order(), first);
  options.shuffle = false;
  const auto plain = order();
  EXPECT_TRUE(std::is_sorted(plain[0].begin(), plain[0].end()));
  EXPECT_EQ(plain[1].front(), 150);
}

TEST(BatchReader, NamesFileColumnAndRow) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 5, 100);
  const auto schema = arrow::schema(
      {arrow::field("x", arrow::list(arrow::float32())), arrow::field("row", arrow::int64())});
  arrow::Int64Builder numbers;
  arrow::ListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::FloatBuilder>());
  auto& values = static_cast<arrow::FloatBuilder&>(*lists.value_builder());
  for (int row = 0; row < 2000; ++row) {
    ASSERT_TRUE(lists.Append().ok() && values.AppendValues({1, 2}).ok());
    ASSERT_TRUE((row == 1500 ? numbers.AppendNull() : numbers.Append(row)).ok());
    if (row == 1600) {
      ASSERT_TRUE(values.Append(3).ok());
    }
  }
  const auto table =
      arrow::Table::Make(schema, {lists.Finish().ValueOrDie(), numbers.Finish().ValueOrDie()});
  const auto sink = arrow::io::FileOutputStream::Open(folder / "b.parquet").ValueOrDie();
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), sink, 900).ok());
  ASSERT_TRUE(sink->Close().ok());

  const auto source = ParquetSource::open(folder.path().string());
  const auto why = [&](const Columns& columns) {
    const Error error = error_of([&] {
      BatchReader reader(source, columns, Selection::all(source), {.shuffle = false});
      while (reader.next()) continue;
    });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return std::string(error.what());
  };
  EXPECT_THAT(why({.features = {"row"}}),
              HasSubstr((folder / "b.parquet") + ": column 'row', row 1500: null"));
  EXPECT_THAT(why({.features = {"x"}}),
              HasSubstr((folder / "b.parquet") + ": column 'x', row 1600: 3 values, and 2 in row"));
  EXPECT_THAT(why({.features = {"x"}, .input_shapes = {{3}}}),
              HasSubstr("column 'x': 2 values per row do not fill the shape [3]"));
  EXPECT_THAT(why({.features = {"y"}}), HasSubstr("no column 'y'"));
}

TEST(BatchReader, RefusesOptionsThatCannotBe) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 5, 100);
  const auto source = ParquetSource::open(folder.path().string());
  for (const BatchReaderOptions& options :
       {BatchReaderOptions{.batch_size = 0}, BatchReaderOptions{.rank = 2, .size = 2},
        BatchReaderOptions{.rank = -1}, BatchReaderOptions{.size = 0},
        BatchReaderOptions{.window_rows = 0}}) {
    EXPECT_EQ(
        error_of([&] { BatchReader(source, kColumns, Selection::all(source), options); }).code(),
        Errc::invalid_argument);
  }
}

TEST(BatchReader, SaysWhenAFileVanishedOrWasReplacedOrDamaged) {
  const Folder folder;
  write_rows(folder / "a.parquet", 0, 3000, 1000);
  const std::string good = content_of(folder / "a.parquet");
  const auto source = ParquetSource::open(folder.path().string());
  const auto read = [&] {
    return error_of([&] {
      BatchReader reader(source, kColumns, Selection::all(source), {.size = 2});
      while (reader.next()) continue;
    });
  };
  fs::remove(folder / "a.parquet");
  const Error vanished = read();
  EXPECT_EQ(vanished.code(), Errc::resource);
  EXPECT_THAT(vanished.what(), HasSubstr("cannot open " + (folder / "a.parquet")));

  write_rows(folder / "a.parquet", 0, 3000, 500);
  const Error replaced = read();
  EXPECT_EQ(replaced.code(), Errc::protocol);
  EXPECT_THAT(replaced.what(), HasSubstr("was replaced by another file"));

  // Before the footer there are only pages, for which write_parquet writes checksums.
  int damaged = 0;
  for (std::size_t part = 1; part < 8; ++part) {
    std::string flipped = good;
    const std::size_t at = good.size() * 3 / 4 * part / 8;
    for (std::size_t i = at; i < at + 64; ++i) flipped[i] = static_cast<char>(~flipped[i]);
    write_content(folder / "a.parquet", flipped);
    try {
      BatchReader reader(source, kColumns, Selection::all(source), {});
      while (reader.next()) continue;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol) << error.what();
      EXPECT_THAT(error.what(), HasSubstr((folder / "a.parquet") + " is damaged"));
      ++damaged;
    }
  }
  EXPECT_GE(damaged, 6);  // one may be of the column that is not read
}

TEST(BatchReader, HoldsAWindowHoweverLargeTheFileIs) {
  const Folder folder;
  constexpr std::int64_t kRows = 40000;  // of 1 KiB: 40 MB in one row group
  write_parquet(folder / "a.parquet", {"x", "row"},
                {torch::rand({kRows, 256}), torch::arange(kRows)}, {.rows_per_group = kRows});
  const auto source = ParquetSource::open(folder.path().string());
  const Columns columns{.features = {"x"}, .labels = {"row"}};
  arrow::ProxyMemoryPool pool(arrow::default_memory_pool());
  RowStream stream(source, columns, Selection::all(source), {{0, 0, kRows}}, &pool);
  std::int64_t rows = 0;
  std::int64_t largest = 0;
  const std::int64_t before = arrow::default_memory_pool()->bytes_allocated();
  std::int64_t held = 0;  // includes data that is read ahead into another pool
  while (const auto some = stream.next()) {
    rows += some->count;
    largest = std::max(largest, some->count);
    held = std::max(held, arrow::default_memory_pool()->bytes_allocated() - before);
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_LE(largest, 1024);
  EXPECT_GT(pool.max_memory(), 0);
  EXPECT_LT(pool.max_memory(), 10 << 20);
  EXPECT_LT(held, 10 << 20);
}

}  // namespace
}  // namespace hvd
