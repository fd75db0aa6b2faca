#include "cli/config_file.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "base/exit_codes.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

/// The options that a file may not have. The first three do not concern a job, and a file must not
/// name another file.
constexpr std::array<std::string_view, 4> kNotInFiles = {"--help", "--version", "--check-build",
                                                         "--config-file"};

int line_of(const YAML::Mark& mark) { return mark.line + 1; }

class FileReader {
 public:
  FileReader(const std::string& name, const std::function<OptionKind(std::string_view)>& kind_of)
      : name_(name), kind_of_(kind_of) {}

  std::vector<ConfigEntry> read(const YAML::Node& root) {
    if (root.IsNull()) return {};
    if (!root.IsMap()) refuse(root, "expected options, as in 'num-proc: 4'");
    read_map(root, "", false);
    if (!unknown_.empty()) {
      throw LaunchError(kExitUsage, fmt::format("{}: hvdrun has no such option: {}",
                                                in_quotes(name_), fmt::join(unknown_, ", ")));
    }
    return std::move(entries_);
  }

 private:
  [[noreturn]] void refuse(const YAML::Node& at, std::string_view why) const {
    throw LaunchError(kExitUsage,
                      fmt::format("{}, line {}: {}", in_quotes(name_), line_of(at.Mark()), why));
  }

  /// `prefix` is the text with which the section's options begin on the command line. A section has
  /// no sections.
  void read_map(const YAML::Node& map, const std::string& prefix, bool is_section) {
    std::set<std::string> seen;
    for (const auto& item : map) {
      if (!item.first.IsScalar()) refuse(item.first, "a key is no name");
      std::string key = item.first.Scalar();
      std::replace(key.begin(), key.end(), '_', '-');
      if (!seen.insert(key).second) {
        refuse(item.first, fmt::format("{} is there twice", in_quotes(key)));
      }
      read_item(item.first, key, item.second, prefix, is_section);
    }
  }

  void read_item(const YAML::Node& at, const std::string& key, const YAML::Node& value,
                 const std::string& prefix, bool in_section) {
    if (key == "enabled" && !prefix.empty()) return read_enabled(at, value, prefix);
    std::string option = fmt::format("--{}{}", prefix, key);
    if (option == "--np") option = "--num-proc";
    if (option == "--x") option = "-x";
    const bool elsewhere =
        std::find(kNotInFiles.begin(), kNotInFiles.end(), option) != kNotInFiles.end();
    if (elsewhere) refuse(at, fmt::format("{} belongs on the command line", option));
    const OptionKind kind = kind_of_(option);
    const bool may_be_section = kind == OptionKind::unknown || kind == OptionKind::flag;
    if (may_be_section && value.IsMap() && !in_section) {
      read_map(value, prefix_of(key), true);
    } else if (kind != OptionKind::unknown) {
      read_option(at, option, kind, value);
    } else {
      unknown_.push_back(fmt::format("{} (line {})", in_quotes(at.Scalar()), line_of(at.Mark())));
    }
  }

  static std::string prefix_of(const std::string& section) {
    if (section == "params" || section == "library-options") return "";
    if (section == "logging") return "log-";
    return section + "-";
  }

  /// "autotune: {enabled: true}" means --autotune, and "stall-check: {enabled: false}" means
  /// --no-stall-check.
  void read_enabled(const YAML::Node& at, const YAML::Node& value, const std::string& prefix) {
    const std::string section = prefix.substr(0, prefix.size() - 1);
    const bool enabled = flag(value);
    for (const bool positive : {true, false}) {
      const std::string option = fmt::format("--{}{}", positive ? "" : "no-", section);
      if (kind_of_(option) != OptionKind::flag) continue;
      if (enabled == positive) add(option, std::nullopt, at);
      return;
    }
    unknown_.push_back(fmt::format("{} (line {})", in_quotes(at.Scalar()), line_of(at.Mark())));
  }

  void read_option(const YAML::Node& at, const std::string& option, OptionKind kind,
                   const YAML::Node& value) {
    if (kind == OptionKind::flag) {
      if (flag(value)) add(option, std::nullopt, at);
      return;
    }
    if (kind == OptionKind::value) {
      if (value.IsNull()) return;
      add(option, one_text(option, value), at);
      return;
    }
    if (option == "-x" && value.IsMap()) {
      for (const auto& item : value) {
        add(option, fmt::format("{}={}", scalar(item.first), scalar(item.second)), item.first);
      }
    } else if (value.IsSequence()) {
      for (const YAML::Node& item : value) add(option, scalar(item), item);
    } else if (!value.IsNull()) {
      add(option, scalar(value), value);
    }
  }

  std::string one_text(const std::string& option, const YAML::Node& value) const {
    std::string text;
    if (value.IsSequence()) {
      for (const YAML::Node& item : value) {
        text += fmt::format("{}{}", text.empty() ? "" : ",", scalar(item));
      }
    } else {
      text = scalar(value);
    }
    if (text.empty()) refuse(value, fmt::format("{} needs a value", option));
    return text;
  }

  std::string scalar(const YAML::Node& value) const {
    if (!value.IsScalar()) refuse(value, "expected a text or a number");
    return value.Scalar();
  }

  bool flag(const YAML::Node& value) const {
    bool result = false;
    if (!value.IsScalar() || !YAML::convert<bool>::decode(value, result)) {
      refuse(value, "expected true or false");
    }
    return result;
  }

  void add(std::string option, std::optional<std::string> value, const YAML::Node& at) {
    entries_.push_back({std::move(option), std::move(value), line_of(at.Mark())});
  }

  const std::string& name_;
  const std::function<OptionKind(std::string_view)>& kind_of_;
  std::vector<ConfigEntry> entries_;
  std::vector<std::string> unknown_;
};

}  // namespace

std::vector<ConfigEntry> parse_config_file(
    const std::string& text, const std::string& name,
    const std::function<OptionKind(std::string_view)>& kind_of) {
  try {
    return FileReader(name, kind_of).read(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    throw LaunchError(kExitUsage, fmt::format("{}, line {}: {}", in_quotes(name),
                                              line_of(error.mark), error.msg));
  }
}

std::string read_config_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const auto size = static_cast<std::size_t>(file.gcount());
  if (!file.is_open() || file.bad() || (size == 0 && !file.eof())) {
    throw LaunchError(kExitUsage, fmt::format("--config-file {}: cannot be read", in_quotes(path)));
  }
  if (size > kMaxBytes) {
    throw LaunchError(kExitUsage,
                      fmt::format("--config-file {}: more than 1 MiB", in_quotes(path)));
  }
  text.resize(size);
  return text;
}

}  // namespace hvd::launcher
