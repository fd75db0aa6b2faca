#include "store/option_reader.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

namespace hvd::detail {

OptionReader::OptionReader(std::string what, StorageOptions options)
    : what_(std::move(what)), given_(std::move(options)), left_(given_) {}

void OptionReader::fail(const std::string& why) const {
  throw Error(Errc::invalid_argument, fmt::format("storage options of {}: {}", what_, why));
}

std::optional<std::string> OptionReader::take(const std::string& name) {
  known_.push_back(name);
  const auto found = left_.find(name);
  if (found == left_.end()) return std::nullopt;
  std::string value = found->second;
  left_.erase(found);
  return value;
}

bool OptionReader::take_bool(const std::string& name) {
  std::string value = take(name).value_or("false");
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (value == "true" || value == "1") return true;
  if (value != "false" && value != "0") fail(fmt::format("'{}' is true or false", name));
  return false;
}

std::optional<int> OptionReader::take_int(const std::string& name) {
  const std::optional<std::string> text = take(name);
  if (!text) return std::nullopt;
  const auto value = to_number<int>(*text);
  if (!value || *value < 1) fail(fmt::format("'{}' is a number above 0", name));
  return value;
}

void OptionReader::need_all(const std::vector<std::string>& names) const {
  const auto given = [this](const std::string& name) { return given_.count(name) != 0; };
  if (std::none_of(names.begin(), names.end(), given)) return;
  for (const std::string& name : names) {
    if (!given(name)) {
      fail(fmt::format("'{}' is missing; {} go together", name, fmt::join(names, ", ")));
    }
  }
}

void OptionReader::finish() const {
  if (left_.empty()) return;
  fail(known_.empty() ? fmt::format("'{}' was given, and none is taken", left_.begin()->first)
                      : fmt::format("'{}' is unknown (known: {})", left_.begin()->first,
                                    fmt::join(known_, ", ")));
}

}  // namespace hvd::detail
