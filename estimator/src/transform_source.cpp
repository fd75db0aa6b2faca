// A model on Parquet files.
#include <algorithm>
#include <span>

#include <arrow/io/memory.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>

#include <hvd/estimator/model.hpp>

#include "arrow_status.hpp"
#include "parquet_files.hpp"

namespace hvd {

namespace {

constexpr std::int64_t kRowsAtOnce = 4096;

void require_new(const EstimatorStore& store) {
  for (const std::string& name : store.list("")) {
    if (!name.ends_with(".parquet")) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("{} has Parquet files already: {}", store.uri(), name));
  }
}

/// One file of the source with the output columns, in Parquet.
std::shared_ptr<arrow::Buffer> transform_file(const Model& model, const ParquetFiles& files,
                                              std::size_t number) {
  const std::string& what = files.uris()[number];
  const auto reader = files.open(number);
  const auto schema = reader->schema();
  arrow::FieldVector fields = schema->fields();
  const auto added = model.output_schema();
  fields.insert(fields.end(), added->fields().begin(), added->fields().end());
  const auto whole = arrow::schema(fields, schema->metadata());

  const auto sink = take(arrow::io::BufferOutputStream::Create(), what);
  const auto writer =
      take(parquet::arrow::FileWriter::Open(*whole, arrow::default_memory_pool(), sink), what);
  const auto groups = static_cast<int>(files.files()[number].row_groups.size());
  std::int64_t row = 0;
  for (int group = 0; group < groups; ++group) {
    check(writer->NewBufferedRowGroup(), what);
    reader->begin(group, schema->field_names(), kRowsAtOnce);
    while (const auto batch = reader->next()) {
      const auto scored = naming(what, [&] { return model.transform(*batch, row); });
      row += batch->num_rows();
      check(writer->WriteRecordBatch(*scored->ReplaceSchema(whole).ValueOr(scored)), what);
    }
  }
  check(writer->Close(), what);
  return take(sink->Finish(), what);
}

}  // namespace

ParquetSource Model::transform(const ParquetSource& source, const std::string& uri,
                               const StorageOptions& storage_options) const {
  Columns features = columns();
  features.labels.clear();
  source.require(features);
  for (const auto& column : source.schema()) {
    const auto& own = description_.output_cols;
    if (std::find(own.begin(), own.end(), column.name) == own.end()) continue;
    throw Error(Errc::invalid_argument, fmt::format("output_cols: {} has a column '{}' already",
                                                    source.uri(), column.name));
  }
  const EstimatorStore store = EstimatorStore::open(uri, {.storage_options = storage_options});
  require_new(store);
  const ParquetFiles& files = source.parquet();
  for (std::size_t number = 0; number < files.files().size(); ++number) {
    const auto bytes = transform_file(*this, files, number);
    store.write(fmt::format("part-{:05}.parquet", number),
                std::as_bytes(std::span(bytes->data(), static_cast<std::size_t>(bytes->size()))));
  }
  return ParquetSource::open(uri, storage_options);
}

}  // namespace hvd
