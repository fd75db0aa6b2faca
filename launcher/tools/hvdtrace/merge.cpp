#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "commands.hpp"
#include "trace_file.hpp"

namespace hvd::trace {
namespace {

using nlohmann::json;

/// Writes the file OUT.part. `keep` renames it to OUT; otherwise the destructor removes it.
class Part {
 public:
  explicit Part(const std::string& out) : out_(out), path_(fmt::format("{}.part", out)) {
    std::error_code error;
    if (std::filesystem::exists(out, error) && !std::filesystem::is_regular_file(out, error)) {
      throw TraceError(kExitWrite, fmt::format("{} exists and is not a file", out));
    }
    file_.open(path_, std::ios::binary | std::ios::trunc);
    check();
  }
  ~Part() {
    std::error_code ignored;
    if (!kept_) std::filesystem::remove(path_, ignored);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  void write(const std::string& text) {
    file_ << text;
    check();
  }
  void keep() {
    file_.close();
    check();
    std::error_code error;
    std::filesystem::rename(path_, out_, error);
    if (error) throw TraceError(kExitWrite, fmt::format("{}: {}", out_, error.message()));
    kept_ = true;
  }

 private:
  void check() const {
    if (!file_) throw TraceError(kExitWrite, fmt::format("cannot write {}", path_));
  }

  std::string out_;
  std::string path_;
  std::ofstream file_;
  bool kept_ = false;
};

/// Returns the time of the earliest event of all, in nanoseconds since 1970, or 0 when there is
/// none. Throws TraceError when two files are of the same rank.
std::int64_t earliest(const std::vector<std::string>& files) {
  constexpr auto kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = kNone;
  std::map<int, std::string> file_of_rank;
  for (const std::string& path : files) {
    for_each_event(path, [&](const json& event, const Origin& origin) {
      if (is_origin(event)) {
        const auto [known, is_new] = file_of_rank.emplace(origin.rank, path);
        if (!is_new) {
          throw TraceError(kExitData, fmt::format("{} and {} are both of rank {}", known->second,
                                                  path, origin.rank));
        }
      }
      if (!event.contains("ts")) return;
      first = std::min(first, nanoseconds_in(event, "ts") + origin.to_unix_ns);
    });
  }
  return first == kNone ? 0 : first;
}

}  // namespace

void merge(const std::string& out, const std::vector<std::string>& files) {
  const std::int64_t base = earliest(files);
  Part part(out);
  const char* separator = "[\n";
  for (const std::string& path : files) {
    for_each_event(path, [&](json& event, const Origin& origin) {
      if (is_origin(event)) {
        event["args"]["steady_to_unix_ns"] = base;
        event["args"]["clock_offset_ns"] = 0;
      }
      if (event.contains("ts")) {
        const std::int64_t since = nanoseconds_in(event, "ts") + origin.to_unix_ns - base;
        event["ts"] = static_cast<double>(since) / 1000.0;
      }
      part.write(separator + event.dump());
      separator = ",\n";
    });
  }
  part.write("\n]\n");
  part.keep();
}

}  // namespace hvd::trace
