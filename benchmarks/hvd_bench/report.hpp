// Prints rows as a table and as JSON.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "measure.hpp"
#include "options.hpp"

namespace hvd::bench {

/// The values that all rows have in common.
struct Setting {
  Options options;
  std::string backend;
  int ranks = 1;
};

/// Returns the header of nccl-tests' columns, with the distribution of the latency in place of its
/// mean.
[[nodiscard]] std::string table_header(const Setting& setting);
[[nodiscard]] std::string table_row(const Setting& setting, const Row& row);

/// The file of `--json`. It is opened before anything is measured, so that a wrong path is reported
/// at once. The constructor and `write` throw std::runtime_error, which names the file.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path);
  void write(const Setting& setting, const std::vector<Row>& rows);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace hvd::bench
