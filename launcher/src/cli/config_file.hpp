// Reads the options of a job from a YAML file, in the two forms that horovodrun accepts. A flat
// file has the long options as keys; a nested one has "stall_check: {warning_time_seconds: 60}".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// The kind of the option with a name such as "--num-proc".
enum class OptionKind {
  unknown,
  flag,   ///< takes no value
  value,  ///< takes one
  list,   ///< may be given several times
};

/// One option that a file sets.
struct ConfigEntry {
  std::string option;                ///< "--num-proc", "-x"
  std::optional<std::string> value;  ///< none for flags
  int line = 0;                      ///< counted from 1
};

/// '-' and '_' mean the same in keys. A flag is `true`, or `false`, which has no effect. "x" takes
/// "NAME=VALUE" texts or a mapping. A sequence elsewhere is a list with commas. Throws LaunchError
/// (usage) naming `name` and the line of what is wrong, and every unknown key with its line.
[[nodiscard]] std::vector<ConfigEntry> parse_config_file(
    const std::string& text, const std::string& name,
    const std::function<OptionKind(std::string_view option)>& kind_of);

/// Reads a file of at most 1 MiB. Throws LaunchError (usage) when it cannot.
[[nodiscard]] std::string read_config_file(const std::string& path);

}  // namespace hvd::launcher
