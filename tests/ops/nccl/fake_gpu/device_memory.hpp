// The allocations of all fake devices. Any thread.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace hvd::test::fake_gpu {

/// In place of a device: host memory from cudaHostAlloc, which every device reads and writes.
inline constexpr int kPinned = 1000;

class DeviceMemory {
 public:
  [[nodiscard]] void* allocate(std::size_t size, int device);
  /// The device it was on; -1 for a pointer that no `allocate` returned.
  int release(void* data);
  /// True when all of [data, data + size) lies in one allocation of `device`; -1: of any.
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
