#include "gradient_heap.hpp"

namespace hvd {

void* GradientHeap::allocate(std::size_t bytes) noexcept {
  ++out_;
  void* const memory = arena_->allocate(bytes);
  if (!memory) --out_;
  return memory;
}

void GradientHeap::deallocate(void* memory) noexcept {
  arena_->deallocate(memory);
  --out_;
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

}  // namespace hvd
