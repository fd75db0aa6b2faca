#include "fake_gpu/device_memory.hpp"

#include "fake_gpu/runtime.hpp"

namespace hvd::test::fake_gpu {
namespace {

// About -1e-37 as a float, which no test expects.
constexpr std::byte kGarbage{0x83};

}  // namespace

void* DeviceMemory::allocate(std::size_t size, int device) {
  Block block{std::vector<std::byte>(size == 0 ? 1 : size, kGarbage), device};
  std::byte* const data = block.bytes.data();
  const std::lock_guard lock(mutex_);
  blocks_.emplace(data, std::move(block));
  return data;
}

int DeviceMemory::release(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<const std::byte*>(data));
  if (found == blocks_.end()) return -1;
  const int device = found->second.device;
  blocks_.erase(found);
  return device;
}

bool DeviceMemory::contains(const void* data, std::size_t size, int device) const {
  const auto* const first = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(first);
  if (found == blocks_.begin()) return false;
  --found;
  const Block& block = found->second;
  return (device < 0 || block.device == device) &&
         first + size <= found->first + block.bytes.size();
}

std::vector<std::string> DeviceMemory::leaks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [data, block] : blocks_) {
    if (runtime().is_broken(block.device)) continue;  // it has gone with its context
    lines.push_back(std::to_string(block.bytes.size()) + " bytes on device " +
                    std::to_string(block.device));
  }
  return lines;
}

void DeviceMemory::clear() {
  const std::lock_guard lock(mutex_);
  blocks_.clear();
}

DeviceMemory& device_memory() {
  static DeviceMemory memory;
  return memory;
}

}  // namespace hvd::test::fake_gpu
