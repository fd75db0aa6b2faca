// Counts what a job leaves in its process.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <string>
#include <thread>

namespace hvd::test {

/// Returns the number of entries of a folder, such as /proc/self/fd.
[[nodiscard]] inline std::ptrdiff_t entries(const char* folder) {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries(folder), Entries());
}

/// Returns the number of threads of the library that remain, by their names, since sanitizers have
/// threads too. The kernel may list a joined thread for a moment longer.
[[nodiscard]] inline int own_threads() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (;;) {
    int found = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      found += name.rfind("hvd-", 0) == 0;
    }
    if (found == 0 || std::chrono::steady_clock::now() >= deadline) return found;
    std::this_thread::yield();
  }
}

}  // namespace hvd::test
