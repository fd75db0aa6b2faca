#include "cli/binding_options.hpp"

#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

constexpr const char* kBindTo = "--bind-to";
constexpr const char* kMapBy = "--map-by";

[[noreturn]] void refuse_option(const char* option, std::string_view value,
                                std::string_view expected) {
  throw CLI::ValidationError(fmt::format("{} {}: expected {}", option, in_quotes(value), expected));
}

BindTo parse_bind_to(std::string_view text) {
  if (text == "core") return BindTo::core;
  if (text == "numa") return BindTo::numa;
  if (text == "none") return BindTo::none;
  if (text == "auto") return BindTo::automatic;
  refuse_option(kBindTo, text, "auto, core, numa or none");
}

/// Parses the number in "PE=2".
std::optional<int> parse_cores(std::string_view text) {
  if (!text.starts_with("PE=") && !text.starts_with("pe=")) return std::nullopt;
  const auto cores = detail::to_number<int>(text.substr(3));
  return cores && *cores >= 1 && *cores <= kMostCoresPerRank ? cores : std::nullopt;
}

void parse_map_by(std::string_view text, BindingOptions& to) {
  constexpr std::string_view kExpected =
      "core or numa, and after it :PE=N for N cores per rank if these are not all";
  const auto colon = text.find(':');
  const std::string_view order = text.substr(0, colon);
  if (order != "core" && order != "numa") refuse_option(kMapBy, text, kExpected);
  to.by = order == "core" ? MapBy::core : MapBy::numa;
  if (colon == std::string_view::npos) return;
  const auto cores = parse_cores(text.substr(colon + 1));
  if (!cores) refuse_option(kMapBy, text, kExpected);
  to.cores = *cores;
}

}  // namespace

void add_binding_options(CLI::App& app, BindingOptions& to) {
  app.add_option_function<std::string>(
         kBindTo, [&to](const std::string& text) { to.to = parse_bind_to(text); },
         "Bind each rank to cores of its own (core), to their NUMA nodes (numa), to cores if the "
         "ranks of a host fit them (auto), or not (none) [auto]")
      ->type_name("WHAT");
  app.add_option_function<std::string>(
         kMapBy, [&to](const std::string& text) { parse_map_by(text, to); },
         "Neighbouring ranks get neighbouring cores (core) or other NUMA nodes (numa); :PE=N: N "
         "cores each")
      ->type_name("ORDER[:PE=N]");
}

}  // namespace hvd::launcher
