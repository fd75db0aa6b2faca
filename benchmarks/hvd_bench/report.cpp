#include "report.hpp"

#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace hvd::bench {
namespace {

/// Returns GB/s (10^9 bytes) at the median.
double algorithm_bandwidth(const Row& row) {
  return row.p50_us > 0 ? static_cast<double>(row.extent.bytes) / row.p50_us / 1e3 : 0;
}

double bus_bandwidth(const Setting& setting, const Row& row) {
  return algorithm_bandwidth(row) * bus_factor(setting.options.kind, setting.ranks);
}

std::string_view reduce_op(const Setting& setting) {
  return reduces(setting.options.kind) ? to_string(setting.options.op) : "none";
}

std::string wrong_column(const Setting& setting, const Row& row) {
  return setting.options.check ? std::to_string(row.wrong) : "N/A";
}

}  // namespace

std::string table_header(const Setting& setting) {
  return fmt::format(
      "# {}, backend {}, {} ranks, {} memory; times are the slowest rank's, bandwidths at the "
      "median\n"
      "#{:>12} {:>12} {:>6} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9} {:>8} {:>7}\n"
      "#{:>12} {:>12} {:>6} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9} {:>8} {:>7}\n",
      operation_of(setting.options), setting.backend, setting.ranks,
      setting.options.cuda    ? "GPU"
      : setting.options.arena ? "arena"
                              : "private",
      "size", "count", "type", "redop", "min", "p50", "p99", "algbw", "busbw", "#wrong", "iters",
      "(B)", "(elements)", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "");
}

std::string table_row(const Setting& setting, const Row& row) {
  return fmt::format(
      " {:>12} {:>12} {:>6} {:>8} {:>12.2f} {:>12.2f} {:>12.2f} {:>9.3f} {:>9.3f} {:>8} {:>7}\n",
      row.extent.bytes, row.extent.count, to_string(setting.options.dtype), reduce_op(setting),
      row.min_us, row.p50_us, row.p99_us, algorithm_bandwidth(row), bus_bandwidth(setting, row),
      wrong_column(setting, row), row.iterations);
}

JsonFile::JsonFile(const std::string& path) : path_(path), file_(path) {
  if (!file_) throw std::runtime_error("cannot write " + path_);
}

void JsonFile::write(const Setting& setting, const std::vector<Row>& rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    array.push_back({{"op", operation_of(setting.options)},
                     {"bytes", row.extent.bytes},
                     {"count", row.extent.count},
                     {"dtype", to_string(setting.options.dtype)},
                     {"redop", reduce_op(setting)},
                     {"backend", setting.backend},
                     {"ranks", setting.ranks},
                     {"p50_us", row.p50_us},
                     {"p99_us", row.p99_us},
                     {"algbw_gbs", algorithm_bandwidth(row)},
                     {"busbw_gbs", bus_bandwidth(setting, row)},
                     {"wrong", row.wrong}});
  }
  file_ << array.dump(2) << '\n';
  file_.close();
  if (!file_) throw std::runtime_error("cannot write " + path_);
}

}  // namespace hvd::bench
