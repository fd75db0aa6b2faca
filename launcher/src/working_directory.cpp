#include "working_directory.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "exit_codes.hpp"

namespace hvd::launcher {

std::string working_directory(const Variables& own) {
  std::error_code error;
  const std::string logical(value_of(own, "PWD"));
  if (logical.starts_with('/') && std::filesystem::equivalent(logical, ".", error)) return logical;
  const auto physical = std::filesystem::current_path(error);
  if (error) {
    throw LaunchError(kExitResource,
                      fmt::format("there is no working directory: {}", error.message()));
  }
  return physical.string();
}

}  // namespace hvd::launcher
