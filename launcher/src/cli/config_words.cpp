#include "cli/config_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

/// Pairs of options that exclude each other. One on the command line overrules the other in a file.
constexpr std::array<std::array<std::string_view, 2>, 2> kRivals = {
    {{"--hosts", "--hostfile"}, {"--no-prefix", "--prefix-output-with-timestamp"}}};

OptionKind kind_of(const CLI::App& app, std::string_view name) {
  const CLI::Option* option = app.get_option_no_throw(std::string(name));
  if (option == nullptr || option->get_group().empty()) return OptionKind::unknown;
  if (option->get_items_expected_max() == 0) return OptionKind::flag;
  return option->get_items_expected_max() > 1 ? OptionKind::list : OptionKind::value;
}

bool is_typed(const CLI::App& app, const std::vector<std::string>& own, std::string_view name) {
  const CLI::Option* wanted = app.get_option_no_throw(std::string(name));
  return std::any_of(own.begin(), own.end(), [&](const std::string& word) {
    const auto given = word.starts_with("--") ? word.substr(0, word.find('=')) : word.substr(0, 2);
    return app.get_option_no_throw(given) == wanted;
  });
}

bool is_overruled(const CLI::App& app, const std::vector<std::string>& own,
                  const std::string& option) {
  if (kind_of(app, option) != OptionKind::list && is_typed(app, own, option)) return true;
  return std::any_of(kRivals.begin(), kRivals.end(), [&](const auto& pair) {
    return (pair[0] == option && is_typed(app, own, pair[1])) ||
           (pair[1] == option && is_typed(app, own, pair[0]));
  });
}

/// Returns whether the text names the option, and not only one whose name begins with its name.
bool is_about(std::string_view text, std::string_view option) {
  for (auto at = text.find(option); at != std::string_view::npos; at = text.find(option, at)) {
    at += option.size();
    const char next = at < text.size() ? text[at] : ' ';
    if (next != '-' && std::isalnum(static_cast<unsigned char>(next)) == 0) return true;
  }
  return false;
}

}  // namespace

std::string ConfigWords::origin_of(const std::string& complaint) const {
  for (const ConfigEntry& entry : entries) {
    if (!is_about(complaint, entry.option)) continue;
    return fmt::format(" ({}, line {})", in_quotes(path), entry.line);
  }
  return "";
}

ConfigWords read_config_words(const CLI::App& app, const std::vector<std::string>& own) {
  constexpr std::string_view kOption = "--config-file=";
  ConfigWords file;
  for (const std::string& word : own) {
    if (word.starts_with(kOption)) file.path = word.substr(kOption.size());
  }
  if (file.path.empty()) return file;
  auto entries = parse_config_file(read_config_file(file.path), file.path,
                                   [&](std::string_view name) { return kind_of(app, name); });
  for (ConfigEntry& entry : entries) {
    if (is_overruled(app, own, entry.option)) continue;
    file.words.push_back(entry.value ? one_word(entry.option, *entry.value) : entry.option);
    file.entries.push_back(std::move(entry));
  }
  return file;
}

std::string one_word(const std::string& option, const std::string& value) {
  return option.starts_with("--") ? fmt::format("{}={}", option, value)
                                  : fmt::format("{}{}", option, value);
}

}  // namespace hvd::launcher
