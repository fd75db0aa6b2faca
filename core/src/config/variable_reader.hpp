// Reads variables one by one. Every error names the variable and quotes its value.
#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "config/environment.hpp"

namespace hvd::detail {

/// Throws Errc::invalid_argument: "HVD_RANK is 'x': expected a whole number, 0 or more".
[[noreturn]] void reject_variable(std::string_view name, std::string_view value,
                                  std::string_view expected);

class VariableReader {
 public:
  explicit VariableReader(const Lookup& lookup) : lookup_(lookup) {}

  [[nodiscard]] std::optional<std::string> text(std::string_view name) const {
    return lookup_(name);
  }
  [[nodiscard]] bool has(std::string_view name) const { return lookup_(name).has_value(); }
  /// Returns the first of `names` that is set, or the first of all.
  [[nodiscard]] std::string_view first_set(std::initializer_list<std::string_view> names) const;
  [[nodiscard]] std::optional<int> integer(std::string_view name) const;
  /// Reads a number in units of `unit`, fractions allowed.
  void duration(std::string_view name, std::chrono::milliseconds unit, bool zero_allowed,
                std::chrono::milliseconds& field) const;
  /// Reads bytes, with an optional suffix K, M or G for powers of 1024.
  void bytes(std::string_view name, std::size_t& field) const;
  /// Reads 0 or 1.
  void flag(std::string_view name, bool& field) const;
  void one_of(std::string_view name, std::initializer_list<std::string_view> choices,
              std::string& field) const;

 private:
  const Lookup& lookup_;
};

}  // namespace hvd::detail
