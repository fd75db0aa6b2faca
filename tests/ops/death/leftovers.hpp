// What a job leaves in its process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <string>

namespace hvd::test {

/// Entries of a folder, such as /proc/self/fd.
[[nodiscard]] inline std::ptrdiff_t entries(const char* folder) {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries(folder), Entries());
}

/// Threads of the library, which names them; sanitizers have some too.
[[nodiscard]] inline int own_threads() {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    found += name.rfind("hvd-", 0) == 0;
  }
  return found;
}

}  // namespace hvd::test
