// The part of LibTorch that the allocator of gradients needs, with the same names and meanings.
// Sanitizers cannot see into LibTorch itself, but see this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace c10 {

enum class DeviceType : std::int8_t { CPU };

struct Device {
  explicit Device(DeviceType kind) : type(kind) {}
  DeviceType type;
};

using DeleterFnPtr = void (*)(void*);

class DataPtr {
 public:
  DataPtr(void* data, void* context, DeleterFnPtr deleter, Device /*device*/)
      : data_(data), context_(context, deleter) {}
  [[nodiscard]] void* get() const { return data_; }

 private:
  void* data_;
  std::unique_ptr<void, DeleterFnPtr> context_;
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual DataPtr allocate(std::size_t bytes) = 0;
  virtual DeleterFnPtr raw_deleter() const { return nullptr; }
  virtual void copy_data(void* to, const void* from, std::size_t bytes) const = 0;

 protected:
  static void default_copy_data(void* to, const void* from, std::size_t bytes);
};

Allocator* GetCPUAllocator();
void SetCPUAllocator(Allocator* allocator, std::uint8_t priority = 0);

enum class ScalarType : std::int8_t { Float };
inline std::size_t elementSize(ScalarType /*type*/) { return sizeof(float); }

using IntArrayRef = std::span<const std::int64_t>;
inline std::int64_t multiply_integers(IntArrayRef sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

}  // namespace c10

namespace torch {

using c10::IntArrayRef;
using c10::ScalarType;

struct TensorOptions {
  explicit TensorOptions(ScalarType /*type*/) {}
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<void> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] bool defined() const { return memory_ != nullptr; }
  [[nodiscard]] void* data_ptr() const { return memory_.get(); }

 private:
  std::shared_ptr<void> memory_;
};

inline Tensor from_blob(void* memory, IntArrayRef /*sizes*/, IntArrayRef /*strides*/,
                        const std::function<void(void*)>& deleter,
                        const TensorOptions& /*options*/) {
  return Tensor(std::shared_ptr<void>(memory, deleter));
}

namespace autograd {
/// -1 outside of a backward pass. Here the test sets it for its thread.
inline thread_local int current_graph_task = -1;
/// The action of another thread at the moment when this one asks.
inline thread_local std::function<void()> meanwhile;
inline int get_current_graph_task_id() {
  if (meanwhile) std::exchange(meanwhile, nullptr)();
  return current_graph_task;
}
}  // namespace autograd

}  // namespace torch
