#include "observe/trace_format.hpp"

#include <algorithm>
#include <cstdlib>
#include <span>

#include <fmt/format.h>

#include "observe/json_text.hpp"

namespace hvd::observe {
namespace {

// Longer names are cut, so that an event takes a few kilobytes at most.
constexpr std::size_t kMostTensor = 2048;
constexpr std::size_t kMostPhase = 256;

std::string quoted(std::string_view text, std::size_t most = kMostPhase) {
  std::string to;
  append_json_string(to, text, most);
  return to;
}

// A trace may have thousands of events per step, so numbers are appended without a format string.
template <class Integer>
void append_number(std::string& to, Integer value) {
  const fmt::format_int digits(value);
  to.append(digits.data(), digits.size());
}

// Appends a time in microseconds, the unit of the format, without the rounding of a double.
void append_microseconds(std::string& to, std::chrono::nanoseconds time) {
  const std::int64_t count = time.count();
  if (count < 0) to += '-';
  append_number(to, std::abs(count / 1000));
  const std::int64_t rest = std::abs(count % 1000);
  to += '.';
  to += static_cast<char>('0' + rest / 100);
  to += static_cast<char>('0' + rest / 10 % 10);
  to += static_cast<char>('0' + rest % 10);
}

std::string microseconds(std::chrono::nanoseconds time) {
  std::string to;
  append_microseconds(to, time);
  return to;
}

void append_type(std::string& to, DType dtype, std::span<const std::int64_t> shape) {
  to += R"(,"dtype":")";
  to += to_string(dtype);
  to += R"(","shape":[)";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) to += ',';
    append_number(to, shape[i]);
  }
  to += ']';
}

std::string metadata(int rank, int lane, std::string_view name, std::string_view args) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", rank, lane,
                     name, args);
}

std::string mark(int rank, Clock::time_point at, std::string_view name, std::string_view args) {
  return fmt::format(
      R"({{"ph":"i","s":"p","pid":{},"tid":0,"ts":{},"cat":"mark","name":{},"args":{{{}}}}})", rank,
      microseconds(at.time_since_epoch()), name, args);
}

}  // namespace

std::string format_origin(const TraceOrigin& origin) {
  return metadata(
      origin.rank, 0, "hvd_rank",
      fmt::format(R"("format":1,"rank":{},"host":{},"steady_to_unix_ns":{},"clock_offset_ns":{})",
                  origin.rank, quoted(origin.host), origin.steady_to_unix.count(),
                  origin.clock_offset.count()));
}

std::string format_process_name(int rank, std::string_view host) {
  const std::string name = fmt::format("rank {} ({})", rank, host);
  return metadata(rank, 0, "process_name", fmt::format(R"("name":{})", quoted(name)));
}

std::string format_process_order(int rank) {
  return metadata(rank, 0, "process_sort_index", fmt::format(R"("sort_index":{})", rank));
}

std::string format_lane_name(int rank, int lane, std::string_view name) {
  return metadata(rank, lane, "thread_name",
                  fmt::format(R"("name":{})", quoted(name, kMostTensor)));
}

std::string format_event(const TraceEvent& event, int rank, int lane) {
  if (event.kind == TraceEvent::Kind::mark) {
    return mark(rank, event.begin, quoted(event.phase), "");
  }
  std::string name(event.phase.substr(0, kMostPhase));
  if (!event.algorithm.empty()) {
    name += " (";
    name += event.algorithm.substr(0, kMostPhase);
    name += ')';
  }
  std::string text;
  text.reserve(512);
  text += R"({"ph":"X","pid":)";
  append_number(text, rank);
  text += R"(,"tid":)";
  append_number(text, lane);
  text += R"(,"ts":)";
  append_microseconds(text, event.begin.time_since_epoch());
  text += R"(,"dur":)";
  append_microseconds(text, std::max(event.end - event.begin, Clock::duration::zero()));
  text += R"(,"cat":)";
  append_json_string(text, event.phase, kMostPhase);
  text += R"(,"name":)";
  append_json_string(text, name, kMostPhase);
  text += R"(,"args":{"tensor":)";
  append_json_string(text, event.tensor, kMostTensor);
  if (event.dtype) append_type(text, *event.dtype, event.shape);
  if (event.bytes > 0) {
    text += R"(,"bytes":)";
    append_number(text, event.bytes);
  }
  if (event.fused > 1) {
    text += R"(,"fused":)";
    append_number(text, event.fused);
  }
  if (!event.algorithm.empty()) {
    text += R"(,"algorithm":)";
    append_json_string(text, event.algorithm, kMostPhase);
  }
  text += "}}";
  return text;
}

std::string format_dropped(int rank, Clock::time_point at, std::uint64_t events) {
  return mark(rank, at, quoted(fmt::format("dropped {} events", events)),
              fmt::format(R"("dropped":{})", events));
}

TraceLanes::Lane TraceLanes::lane_of(std::string_view tensor) {
  if (const auto found = by_name_.find(tensor); found != by_name_.end()) {
    owners_.splice(owners_.begin(), owners_, found->second);
    return {.number = found->second->number};
  }
  Lane lane;
  if (owners_.size() < most_) {
    lane.fresh = true;
    owners_.push_front({std::string(tensor), static_cast<int>(owners_.size()) + 1, false});
  } else {
    owners_.splice(owners_.begin(), owners_, std::prev(owners_.end()));
    Owner& owner = owners_.front();
    by_name_.erase(owner.name);
    owner.name = tensor;
    lane.shared = !owner.shared;
    owner.shared = true;
  }
  lane.number = owners_.front().number;
  by_name_.emplace(owners_.front().name, owners_.begin());
  return lane;
}

}  // namespace hvd::observe
