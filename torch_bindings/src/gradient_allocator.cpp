#include "gradient_allocator.hpp"

#include <algorithm>
#include <limits>
#include <mutex>

#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/graph_task.h>

namespace hvd {
namespace {

// A plain pointer, to be read also when a thread's other variables have ended; what it points to is
// kept beside it.
thread_local GradientHeap* heap_of_this_thread = nullptr;

struct HeapKeeper {
  ~HeapKeeper() { heap_of_this_thread = nullptr; }
  std::shared_ptr<GradientHeap> heap;
};
thread_local HeapKeeper keeper;

/// LibTorch has no graph task on a thread outside of a backward pass.
bool in_backward_pass() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace

GradientAllocator::GradientAllocator(c10::Allocator& before)
    : before_(before), delete_before_(before.raw_deleter()) {}

GradientAllocator& GradientAllocator::installed() {
  // Never destroyed: memory that it gave comes back in the destructors of static objects.
  static GradientAllocator* const allocator = [] {
    auto* made = new GradientAllocator(*c10::GetCPUAllocator());  // NOLINT
    if (made->delete_before_) c10::SetCPUAllocator(made, std::numeric_limits<std::uint8_t>::max());
    return made;
  }();
  return *allocator;
}

std::shared_ptr<GradientHeap> GradientAllocator::acquire(const std::shared_ptr<Arena>& arena) {
  const std::unique_lock lock(mutex_);
  drop_idle();
  auto at = std::find_if(heaps_.begin(), heaps_.end(),
                         [&](const auto& heap) { return heap->arena() == arena; });
  if (at == heaps_.end()) at = heaps_.insert(at, std::make_shared<GradientHeap>(arena));
  (*at)->begin_use();
  return *at;
}

void GradientAllocator::use_here(const std::shared_ptr<GradientHeap>& heap) {
  if (heap_of_this_thread == heap.get()) return;
  keeper.heap = heap;
  heap_of_this_thread = heap.get();
}

void GradientAllocator::release(const std::shared_ptr<GradientHeap>& heap) noexcept {
  const std::unique_lock lock(mutex_);
  heap->end_use();
  drop_idle();
}

void GradientAllocator::drop_idle() noexcept {
  heaps_.erase(
      std::remove_if(heaps_.begin(), heaps_.end(), [](const auto& heap) { return heap->idle(); }),
      heaps_.end());
}

c10::DataPtr GradientAllocator::allocate(std::size_t bytes) {
  GradientHeap* const heap = heap_of_this_thread;
  if (heap && bytes > 0 && heap->expects(bytes) && in_backward_pass()) {
    if (void* memory = heap->allocate(bytes)) {
      return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
    }
  }
  return before_.allocate(bytes);
}

void GradientAllocator::give_back(void* memory) {
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

}  // namespace hvd
