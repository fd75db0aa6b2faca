#include "own_environment.hpp"

#include <cstdlib>

#include <unistd.h>

namespace hvd {

std::optional<std::string> estimator_request_text() {
  const char* const text = std::getenv("HVD_ESTIMATOR");
  if (text == nullptr) return std::nullopt;
  return text;
}

bool on_terminal() {
  return ::isatty(STDOUT_FILENO) == 1 || std::getenv("HVD_TERMINAL") != nullptr;
}

}  // namespace hvd
