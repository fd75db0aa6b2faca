// Reads the files that hvd::Timeline writes, and those that `hvdtrace merge` makes of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <hvd/core/internal/whole_number.hpp>

namespace hvd::trace {

inline constexpr int kExitUsage = 64;
inline constexpr int kExitData = 65;   // EX_DATAERR of sysexits.h
inline constexpr int kExitWrite = 74;  // EX_IOERR

/// An error of hvdtrace. It holds one line for the user and the code to exit with.
class TraceError : public std::runtime_error {
 public:
  TraceError(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The rank whose events follow, and its clock, from the "hvd_rank" element of the file.
struct Origin {
  int rank = 0;
  std::string host;
  /// The number that turns a time of the file into nanoseconds since 1970 on the reference clock,
  /// by addition.
  std::int64_t to_unix_ns = 0;
};

/// Calls `body` with each element and the origin of its rank, in the file's order, and holds one
/// element at a time. Throws TraceError naming the file when it is no such trace.
void for_each_event(const std::string& path,
                    const std::function<void(nlohmann::json& event, const Origin& origin)>& body);

/// Returns the whole number at `key`. Throws std::runtime_error when the value is not a whole
/// number that `Integer` can hold, and json::exception when there is none.
template <class Integer>
[[nodiscard]] Integer whole_number(const nlohmann::json& in, const char* key) {
  const nlohmann::json& value = in.at(key);
  if (detail::is_whole<Integer>(value)) return value.get<Integer>();
  throw std::runtime_error(fmt::format("{} is {}, not a whole number in range", key, value.dump()));
}

[[nodiscard]] bool is_origin(const nlohmann::json& event);
/// Returns the nanoseconds of "ts" or "dur", which are microseconds with a fraction.
[[nodiscard]] std::int64_t nanoseconds_in(const nlohmann::json& event, const char* key);

}  // namespace hvd::trace
