// The only file of the library that reads the environment.
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <hvd/core/config.hpp>

#include "config_parse.hpp"

namespace hvd {

Config Config::from_environment() {
  return parse_config([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace hvd
