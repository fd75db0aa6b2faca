#include "config/variable_reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

namespace hvd::detail {

using std::chrono::milliseconds;

void reject_variable(std::string_view name, std::string_view value, std::string_view expected) {
  throw Error(Errc::invalid_argument, fmt::format("{} is '{}': {}", name, value, expected));
}

std::string_view VariableReader::first_set(std::initializer_list<std::string_view> names) const {
  const auto* const found =
      std::find_if(names.begin(), names.end(), [this](std::string_view name) { return has(name); });
  return found == names.end() ? *names.begin() : *found;
}

std::optional<int> VariableReader::integer(std::string_view name) const {
  const auto value = lookup_(name);
  if (!value) return std::nullopt;
  const auto number = to_number<int>(*value);
  if (!number || *number < 0) reject_variable(name, *value, "expected a whole number, 0 or more");
  return number;
}

void VariableReader::duration(std::string_view name, milliseconds unit, bool zero_allowed,
                              milliseconds& field) const {
  const auto value = lookup_(name);
  if (!value) return;
  const auto number = to_number<double>(*value);
  constexpr double kLongest = 1e12;  // in ms, about 30 years, which is far from any overflow
  const double ms = number ? std::round(*number * static_cast<double>(unit.count())) : -1.0;
  const double least = zero_allowed ? 0.0 : 1.0;
  if (!std::isfinite(ms) || ms < least || ms > kLongest || std::signbit(*number)) {
    reject_variable(name, *value,
                    fmt::format("expected a number of {}{}",
                                unit == milliseconds{1} ? "milliseconds" : "seconds",
                                zero_allowed ? ", 0 or more" : " above 0"));
  }
  field = milliseconds{static_cast<milliseconds::rep>(ms)};
}

void VariableReader::bytes(std::string_view name, std::size_t& field) const {
  const auto value = lookup_(name);
  if (!value) return;
  std::string_view digits = *value;
  int shift = 0;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) digits.remove_suffix(1);
  }
  const auto number = to_number<std::uint64_t>(digits);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!number || *number > (kMost >> shift)) {
    reject_variable(name, *value, "expected a size in bytes, as in 4194304, 4096K, 16M or 1G");
  }
  field = static_cast<std::size_t>(*number << shift);
}

void VariableReader::flag(std::string_view name, bool& field) const {
  std::string text = field ? "1" : "0";
  one_of(name, {"0", "1"}, text);
  field = text == "1";
}

void VariableReader::one_of(std::string_view name, std::initializer_list<std::string_view> choices,
                            std::string& field) const {
  const auto value = lookup_(name);
  if (!value) return;
  if (std::find(choices.begin(), choices.end(), *value) == choices.end()) {
    reject_variable(name, *value, fmt::format("expected one of {}", fmt::join(choices, ", ")));
  }
  field = *value;
}

}  // namespace hvd::detail
