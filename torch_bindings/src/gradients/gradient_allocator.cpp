#include "gradients/gradient_allocator.hpp"

#include <algorithm>
#include <limits>
#include <mutex>

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/graph_task.h>

namespace hvd::detail {
namespace {

// A thread may read this pointer after its other thread-local variables have been destroyed, so it
// has no destructor. The thread's HeapUser owns the heap.
thread_local GradientHeap* heap_of_this_thread = nullptr;

/// Keeps the heap of a thread in the list of the installed allocator. The thread may still allocate
/// while the last optimizer is destroyed, and `deallocate` must find the heap of that block.
struct HeapUser {
  ~HeapUser() { use(nullptr); }
  void use(std::shared_ptr<GradientHeap> next) noexcept {
    if (next) next->begin_use();
    heap_of_this_thread = next.get();
    heap.swap(next);
    if (next) GradientAllocator::installed().release(next);
  }
  std::shared_ptr<GradientHeap> heap;
};
thread_local HeapUser user_of_this_thread;

/// Outside of a backward pass, LibTorch has no graph task on the thread.
bool in_backward_pass() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace

void* GradientHeap::allocate(std::size_t bytes) noexcept {
  ++blocks_;
  void* const memory = arena_->allocate(bytes);
  if (!memory) --blocks_;
  return memory;
}

void GradientHeap::deallocate(void* memory) noexcept {
  arena_->deallocate(memory);
  --blocks_;
}

torch::Tensor GradientHeap::empty(torch::IntArrayRef sizes, torch::IntArrayRef strides,
                                  torch::ScalarType dtype) {
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * elementSize(dtype);
  void* const memory = allocate(bytes);
  if (!memory) return {};
  return torch::from_blob(
      memory, sizes, strides,
      [heap = shared_from_this()](void* returned) { heap->deallocate(returned); },
      torch::TensorOptions(dtype));
}

GradientAllocator::GradientAllocator(c10::Allocator& before)
    : before_(before), delete_before_(before.raw_deleter()) {}

GradientAllocator& GradientAllocator::installed() {
  // It is never destroyed, because the destructors of static objects deallocate memory too.
  static GradientAllocator* const allocator = [] {
    auto* made = new GradientAllocator(*c10::GetCPUAllocator());  // NOLINT
    if (made->delete_before_) c10::SetCPUAllocator(made, std::numeric_limits<std::uint8_t>::max());
    return made;
  }();
  return *allocator;
}

std::shared_ptr<GradientHeap> GradientAllocator::acquire(const std::shared_ptr<Arena>& arena) {
  const std::unique_lock lock(mutex_);
  drop_idle_heaps();
  auto at = std::find_if(heaps_.begin(), heaps_.end(),
                         [&](const auto& heap) { return heap->arena() == arena; });
  if (at == heaps_.end()) at = heaps_.insert(at, std::make_shared<GradientHeap>(arena));
  (*at)->begin_use();
  return *at;
}

void GradientAllocator::use_on_this_thread(const std::shared_ptr<GradientHeap>& heap) {
  if (heap_of_this_thread != heap.get()) user_of_this_thread.use(heap);
}

void GradientAllocator::release(const std::shared_ptr<GradientHeap>& heap) noexcept {
  const std::unique_lock lock(mutex_);
  heap->end_use();
  drop_idle_heaps();
}

void GradientAllocator::drop_idle_heaps() noexcept {
  heaps_.erase(
      std::remove_if(heaps_.begin(), heaps_.end(), [](const auto& heap) { return heap->idle(); }),
      heaps_.end());
}

c10::DataPtr GradientAllocator::allocate(std::size_t bytes) {
  GradientHeap* const heap = heap_of_this_thread;
  if (heap && bytes > 0 && heap->expects(bytes) && in_backward_pass()) {
    if (void* memory = heap->allocate(bytes)) {
      return {memory, memory, &deallocate, c10::Device(c10::DeviceType::CPU)};
    }
  }
  return before_.allocate(bytes);
}

void GradientAllocator::deallocate(void* memory) {
  if (!memory) return;
  GradientAllocator& self = installed();
  {
    const std::shared_lock lock(self.mutex_);
    for (const auto& heap : self.heaps_) {
      if (heap->contains(memory, 1)) return heap->deallocate(memory);
    }
  }
  self.delete_before_(memory);
}

}  // namespace hvd::detail
