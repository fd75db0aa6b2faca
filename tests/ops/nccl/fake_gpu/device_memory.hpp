// The allocations of all fake devices. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace hvd::test::fake_gpu {

/// Stands for host memory from cudaHostAlloc, which every device reads and writes.
inline constexpr int kPinned = 1000;

class DeviceMemory {
 public:
  [[nodiscard]] void* allocate(std::size_t size, int device);
  /// Returns the memory's device, or -1 for a pointer that `allocate` did not return.
  int release(void* data);
  /// Returns true when all of [data, data + size) lies in one allocation of `device`; -1 means of
  /// any device.
  [[nodiscard]] bool contains(const void* data, std::size_t size, int device) const;
  [[nodiscard]] std::vector<std::string> leaks() const;
  void clear();

 private:
  struct Block {
    std::vector<std::byte> bytes;
    int device = 0;
  };

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;
};

[[nodiscard]] DeviceMemory& device_memory();

}  // namespace hvd::test::fake_gpu
