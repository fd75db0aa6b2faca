// Reads the YAML file of --config-file.
#include <map>
#include <string>
#include <string_view>

#include "base/exit_codes.hpp"
#include "check.hpp"
#include "cli/config_file.hpp"

namespace {

using namespace hvd::launcher;
using hvd::fuzz::check;

OptionKind kind_of(std::string_view option) {
  static const std::map<std::string_view, OptionKind> kKinds = {
      {"--verbose", OptionKind::flag},        {"--autotune", OptionKind::flag},
      {"--no-stall-check", OptionKind::flag}, {"--num-proc", OptionKind::value},
      {"--hosts", OptionKind::value},         {"--autotune-log-file", OptionKind::value},
      {"--log-level", OptionKind::value},     {"-x", OptionKind::list}};
  const auto known = kKinds.find(option);
  return known == kKinds.end() ? OptionKind::unknown : known->second;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    for (const ConfigEntry& entry : parse_config_file(text, "f", kind_of)) {
      const OptionKind kind = kind_of(entry.option);
      check(kind != OptionKind::unknown && entry.line >= 1);
      check(entry.value.has_value() == (kind != OptionKind::flag));
    }
  } catch (const LaunchError& error) {
    check(error.code() == kExitUsage);
  }
  return 0;
}
