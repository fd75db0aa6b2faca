// Provides memory that this process shares at the same address with the ranks that it forks later.
#pragma once

#include <cstddef>

namespace hvd::bounds {

/// Maps an anonymous file. Pages that are never touched cost nothing. Throws std::system_error.
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
