#include "trace_file.hpp"

#include <cmath>
#include <fstream>

#include <fmt/format.h>

namespace hvd::trace {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw TraceError(kExitData, fmt::format("{}: {}", path, why));
}

// No sum of two clocks and a time overflows within these bounds. They are the years 1875 to 2065,
// and 31 years for a time of the monotonic clock.
constexpr std::int64_t kMostClock = 3'000'000'000'000'000'000;
constexpr double kMostTime = 1e18;

std::int64_t clock_in(const json& args, const char* key) {
  const auto clock = whole_number<std::int64_t>(args, key);
  if (clock < -kMostClock || clock > kMostClock) {
    throw std::runtime_error(fmt::format("{} is out of range", key));
  }
  return clock;
}

Origin origin_of(const json& event) {
  const json& args = event.at("args");
  if (whole_number<int>(args, "format") != 1) {
    throw std::runtime_error("written by another version of hvd");
  }
  return {whole_number<int>(args, "rank"), args.at("host").get<std::string>(),
          clock_in(args, "steady_to_unix_ns") + clock_in(args, "clock_offset_ns")};
}

// Returns whether a parse error at this byte means only that the file ends early. A rank that was
// killed while it wrote leaves an array that is cut in its last element, or where a new element was
// to replace the closing bracket.
bool ends_early(std::ifstream& file, std::size_t error_at) {
  constexpr std::size_t kBracket = 3;  // "\n]\n"
  file.clear();
  file.seekg(0, std::ios::end);
  return error_at + kBracket > static_cast<std::size_t>(file.tellg());
}

}  // namespace

bool is_origin(const json& event) {
  return event.value("ph", "") == "M" && event.value("name", "") == "hvd_rank";
}

std::int64_t nanoseconds_in(const json& event, const char* key) {
  const double value = event.at(key).get<double>() * 1000.0;
  if (!(std::abs(value) < kMostTime)) throw std::runtime_error("a time is out of range");
  return std::llround(value);
}

void for_each_event(const std::string& path,
                    const std::function<void(json& event, const Origin& origin)>& body) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot be read");
  std::map<int, Origin> origins;
  const auto take = [&](json& event) {
    const int rank = whole_number<int>(event, "pid");
    if (is_origin(event)) origins[rank] = origin_of(event);
    const auto origin = origins.find(rank);
    if (origin == origins.end()) throw std::runtime_error("not a timeline of hvd");
    body(event, origin->second);
  };
  // Elements are taken as they end and dropped, so that a trace need not fit into memory.
  const auto on_event = [&](int depth, json::parse_event_t kind, json& value) {
    if (depth == 0 && kind == json::parse_event_t::object_start) {
      throw std::runtime_error("not a timeline of hvd");
    }
    if (depth != 1 || kind != json::parse_event_t::object_end) return true;
    take(value);
    return false;
  };
  try {
    const json rest = json::parse(file, on_event);
    if (!rest.is_array() || origins.empty()) fail(path, "not a timeline of hvd");
  } catch (const json::parse_error& error) {
    if (origins.empty() || !ends_early(file, error.byte)) fail(path, error.what());
  } catch (const json::exception& error) {
    fail(path, error.what());
  } catch (const TraceError&) {
    throw;
  } catch (const std::runtime_error& error) {
    fail(path, error.what());
  }
}

}  // namespace hvd::trace
