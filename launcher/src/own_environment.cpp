#include "own_environment.hpp"

#include <unistd.h>

namespace hvd::launcher {

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace hvd::launcher
