#include "gradients/gradient_placement.hpp"

#include <utility>

#include <ATen/MemoryOverlap.h>
#include <malloc.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>

#include "collectives/tensor_traits.hpp"
#include "gradients/gradient_allocator.hpp"

namespace hvd::detail {
namespace {

/// Returns the strides that autograd gives the parameter's gradient.
c10::DimVector strides_for(const torch::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return c10::DimVector(parameter.strides());
  return c10::contiguous_strides(parameter.sizes());
}

torch::Tensor empty_for(const torch::Tensor& parameter) {
  return torch::empty_strided(parameter.sizes(), strides_for(parameter),
                              parameter.options().requires_grad(false));
}

/// Returns whether the gradient is the very tensor that autograd has computed. It is not if
/// autograd has copied that tensor, or has added it to an older gradient.
bool is_handed_over(const torch::Tensor& gradient, const torch::Tensor& incoming) {
  return incoming.defined() && incoming.layout() == torch::kStrided &&
         incoming.is_alias_of(gradient);
}

/// Returns whether no other tensor uses the gradient's memory. While the hook runs, autograd holds
/// the incoming gradient, and a view holds its base. The engine may still hold the memory for
/// an earlier reduction, for which the current stream already waits. If there are more references,
/// the memory may become the gradient of another parameter too.
bool has_own_memory(const torch::Tensor& gradient, const torch::Tensor& incoming,
                    const std::weak_ptr<c10::Storage>& in_engine) {
  std::size_t holders = gradient.storage().use_count();
  // This comes after the count, since the engine's reference may end at any time.
  const std::shared_ptr<c10::Storage> held = in_engine.lock();
  if (held && held->unsafeGetStorageImpl() == gradient.storage().unsafeGetStorageImpl()) --holders;
  if (!is_handed_over(gradient, incoming)) return holders <= 1;
  if (!incoming.is_view()) return holders <= 2;
  return holders <= 3 && incoming._base().use_count() <= 1;
}

/// Returns whether the program may read the gradient through another tensor: through this one,
/// which it has kept, or through one with the same memory, such as a buffer of all gradients.
bool is_kept(const torch::Tensor& gradient, const torch::Tensor& incoming,
             const std::weak_ptr<c10::Storage>& in_engine) {
  if (is_handed_over(gradient, incoming)) return false;
  // A tensor whose elements share memory cannot be written.
  if (at::has_internal_overlap(gradient) == at::MemOverlap::Yes) return false;
  return gradient.use_count() > 1 || !has_own_memory(gradient, incoming, in_engine);
}

constexpr int kMmapThreshold = 32 << 20;

/// glibc maps large blocks and returns their pages when they are freed, which costs page faults in
/// every step. From the sizes of the blocks that are freed it learns to keep them, by raising two
/// thresholds. The largest ones are often gradients, which now lie in the arena, so the thresholds
/// are set to the greatest values that glibc would reach. Both are set, because glibc no longer
/// raises one when the other is set.
void keep_freed_memory() {
  static const bool once = [] {
    return ::mallopt(M_MMAP_THRESHOLD, kMmapThreshold) == 1 &&
           ::mallopt(M_TRIM_THRESHOLD, 2 * kMmapThreshold) == 1;
  }();
  static_cast<void>(once);
}

}  // namespace

GradientPlacement::GradientPlacement(GradientMemory memory, const Context& context,
                                     const std::vector<torch::Tensor>& parameters) {
  if (memory == GradientMemory::as_is || !context.arena()) return;
  uses_allocator_ = memory == GradientMemory::born_shared;
  if (!uses_allocator_) {
    heap_ = std::make_shared<GradientHeap>(context.arena());
    return;
  }
  if (context.config().tune_malloc) keep_freed_memory();
  heap_ = GradientAllocator::installed().acquire(context.arena());
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.is_cpu()) heap_->expect(expected_.emplace_back(parameter.nbytes()));
  }
  use_on_this_thread();
}

GradientPlacement::GradientPlacement(const Context& context) {
  if (!context.config().tune_malloc) return;
  keep_freed_memory();
  if (!context.arena()) return;
  uses_allocator_ = true;
  heap_ = GradientAllocator::installed().acquire(context.arena());
  heap_->expect_all_above(kMmapThreshold);
  use_on_this_thread();
}

GradientPlacement::~GradientPlacement() {
  if (!uses_allocator_) return;
  for (const std::size_t bytes : expected_) heap_->forget(bytes);
  GradientAllocator::installed().release(heap_);
}

void GradientPlacement::use_on_this_thread() const {
  if (uses_allocator_) GradientAllocator::use_on_this_thread(heap_);
}

bool GradientPlacement::lies_in_arena(const torch::Tensor& gradient) const {
  return !heap_ || !gradient.is_cpu() || gradient.numel() == 0 ||
         heap_->contains(gradient.data_ptr(), gradient.nbytes());
}

torch::Tensor GradientPlacement::empty_in_arena(const torch::Tensor& parameter) const {
  if (!heap_ || !parameter.is_cpu() || parameter.numel() == 0) return {};
  return heap_->empty(parameter.sizes(), strides_for(parameter), parameter.scalar_type());
}

torch::Tensor GradientPlacement::place(const torch::Tensor& parameter,
                                       const torch::Tensor& incoming,
                                       const std::weak_ptr<c10::Storage>& in_engine) {
  const torch::Tensor& gradient = parameter.grad();
  const bool usable = torch::autograd::utils::obeys_layout_contract(gradient, parameter) &&
                      !gradient.is_neg() && !gradient.is_conj() &&
                      has_own_memory(gradient, incoming, in_engine);
  torch::Tensor placed;
  if (!usable || !lies_in_arena(gradient)) placed = empty_in_arena(parameter);
  if (usable && !placed.defined()) {
    ++counters_.in_place;
    return {};
  }
  const torch::NoGradGuard no_grad;
  if (!placed.defined()) placed = empty_for(parameter);
  placed.copy_(gradient);
  ++counters_.copied;
  counters_.copied_bytes += gradient.nbytes();
  torch::Tensor kept;
  if (is_kept(gradient, incoming, in_engine)) kept = gradient;
  parameter.mutable_grad() = std::move(placed);
  return kept;
}

torch::Tensor GradientPlacement::zeros_for(const torch::Tensor& parameter) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor zeros = empty_in_arena(parameter);
  if (!zeros.defined()) zeros = empty_for(parameter);
  return zeros.zero_();
}

torch::Tensor GradientPlacement::empty_row(std::int64_t count,
                                           const torch::TensorOptions& options) const {
  if (heap_ && options.device().is_cpu() && count > 0) {
    torch::Tensor row = heap_->empty({count}, {1}, c10::typeMetaToScalarType(options.dtype()));
    if (row.defined()) return row;
  }
  return torch::empty({count}, options);
}

torch::Tensor elements_of(const torch::Tensor& gradient) {
  return plain_alias(gradient).as_strided({gradient.numel()}, {1});
}

}  // namespace hvd::detail
