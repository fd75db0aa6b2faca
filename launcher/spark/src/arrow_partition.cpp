#include <charconv>
#include <limits>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/spark.hpp>

#include "config/environment.hpp"

namespace hvd {
namespace {

constexpr std::string_view kVariable = "HVD_ARROW_PARTITION";

ArrowFile parse_line(std::string_view line) {
  ArrowFile file;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), file.rows);
  const std::string_view rest = line.substr(static_cast<std::size_t>(end - line.data()));
  // With this bound the sum of the rows cannot overflow, because the number of files is limited by
  // the size of the environment.
  const bool number = error == std::errc{} && file.rows >= 0 &&
                      file.rows <= std::numeric_limits<std::int64_t>::max() >> 24;
  if (!number || rest.size() < 2 || rest.front() != ' ') {
    throw Error(Errc::invalid_argument,
                fmt::format("{} says '{}': expected a number of rows, a blank and a path",
                            kVariable, line));
  }
  file.path = rest.substr(1);
  return file;
}

}  // namespace

std::int64_t ArrowPartition::rows() const noexcept {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const ArrowFile& file) { return sum + file.rows; });
}

std::optional<ArrowPartition> ArrowPartition::of_this_rank() {
  const auto value = detail::environment_variable(kVariable);
  if (!value) return std::nullopt;
  ArrowPartition partition;
  std::string_view text = *value;
  while (!text.empty()) {
    const auto end = text.find('\n');
    partition.files.push_back(parse_line(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return partition;
}

}  // namespace hvd
