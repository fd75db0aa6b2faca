// Memory that this process and the ranks it forks later share at the same address.
#pragma once

#include <cstddef>

namespace hvd::bounds {

/// An anonymous file, mapped; pages that nobody touches cost nothing. Throws std::system_error.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::size_t size_;
  std::byte* data_ = nullptr;
};

}  // namespace hvd::bounds
