#include "option_variables.hpp"

#include <chrono>

#include <fmt/format.h>

namespace hvd::launcher {

Variables option_variables(const Options& options) {
  Variables variables = exported_variables(options.tuning, {});
  if (options.start_timeout) {
    const std::chrono::duration<double> seconds = *options.start_timeout;
    variables.push_back(fmt::format("HVD_START_TIMEOUT={}", seconds.count()));
  }
  if (!options.interfaces.empty()) {
    variables.push_back(fmt::format("HVD_NETWORK_INTERFACES={}", options.interfaces));
  }
  return variables;
}

}  // namespace hvd::launcher
