#include "driver.hpp"

#include <cstdio>
#include <fstream>
#include <optional>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "measure.hpp"

namespace hvd::peers {
namespace {

nlohmann::ordered_json json_of(const Library& library, const Row& row) {
  const double ranks = library.ranks();
  const double algbw = row.p50_us > 0 ? static_cast<double>(row.bytes) / row.p50_us / 1e3 : 0;
  std::string backend = library.name();
  if (row.way != "default") backend += ", " + row.way;
  return {{"op", "allreduce"},
          {"bytes", row.bytes},
          {"count", row.bytes / sizeof(float)},
          {"dtype", "f32"},
          {"redop", "sum"},
          {"backend", backend},
          {"ranks", library.ranks()},
          {"p50_us", row.p50_us},
          {"p99_us", row.p99_us},
          {"algbw_gbs", algbw},
          {"busbw_gbs", algbw * 2 * (ranks - 1) / ranks},
          {"wrong", row.wrong}};
}

void print(const Row& row) {
  std::printf(" %12zu %12.2f %12.2f %12.2f %8lld %7d  %s\n", row.bytes, row.min_us, row.p50_us,
              row.p99_us, static_cast<long long>(row.wrong), row.iterations, row.way.c_str());
  std::fflush(stdout);
}

void write(const std::string& path, const nlohmann::ordered_json& rows) {
  std::ofstream file(path);
  file << rows.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace

bool run(Library& library, const Options& options) {
  const bool speaks = library.rank() == 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (speaks) {
    std::printf("# allreduce, %s, %d ranks; times are the slowest rank's\n", library.name().c_str(),
                library.ranks());
    std::printf("#%12s %12s %12s %12s %8s %7s  way\n", "size (B)", "min (us)", "p50 (us)",
                "p99 (us)", "#wrong", "iters");
  }
  bool right = true;
  for (std::size_t bytes = options.begin;; bytes *= options.factor) {
    if (const std::optional<Row> row = measure(library, options, bytes)) {
      right = right && row->wrong == 0;
      if (speaks) print(*row);
      if (speaks) rows.push_back(json_of(library, *row));
    }
    if (bytes > options.end / options.factor) break;
  }
  if (speaks && !options.json.empty()) write(options.json, rows);
  return right;
}

}  // namespace hvd::peers
