// Opens a writer of Parquet.
#pragma once

#include <memory>
#include <string>

#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>

#include "store/arrow_status.hpp"

namespace hvd::detail {

/// The writer keeps Arrow's types, such as lists of a fixed size, and adds a checksum to each page.
[[nodiscard]] inline std::unique_ptr<parquet::arrow::FileWriter> open_writer(
    const arrow::Schema& schema, const std::shared_ptr<arrow::io::OutputStream>& sink,
    const std::string& what) {
  const auto kept = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  const auto pages = parquet::WriterProperties::Builder().enable_page_checksum()->build();
  return take(
      parquet::arrow::FileWriter::Open(schema, arrow::default_memory_pool(), sink, pages, kept),
      what);
}

}  // namespace hvd::detail
