// A temporary directory of the test, with fifos by which its scripts synchronise.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace hvd::launcher {

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::path(testing::TempDir()) / "hvdrun-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  void make_fifo(const std::string& name) const {
    if (::mkfifo((path_ / name).c_str(), 0600) != 0) throw std::runtime_error("mkfifo " + name);
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace hvd::launcher
