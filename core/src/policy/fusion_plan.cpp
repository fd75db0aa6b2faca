#include "policy/fusion_plan.hpp"

namespace hvd::detail {

bool may_share(const Request& a, const Request& b) noexcept {
  const bool fuses = a.kind == OpKind::allreduce || a.kind == OpKind::allgather ||
                     a.kind == OpKind::broadcast || a.kind == OpKind::reducescatter;
  return fuses && a.kind == b.kind && a.process_set == b.process_set && a.dtype == b.dtype &&
         a.device.kind == b.device.kind && a.op == b.op && a.root == b.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.f32_memory == b.f32_memory;
}

bool may_share(const ReadyTensor& a, const ReadyTensor& b) noexcept {
  return may_share(a.request, b.request) && a.contributors == b.contributors;
}

std::size_t bytes_of(const ReadyTensor& tensor) noexcept {
  std::int64_t count = element_count(tensor.request.shape);
  if (tensor.request.kind == OpKind::allgather) {
    const Shape& shape = tensor.request.shape;
    std::int64_t rows = 0;
    for (const auto& of_member : tensor.rows) rows += of_member.front();
    count = rows * element_count(Shape(shape.begin() + 1, shape.end()));
  }
  return static_cast<std::size_t>(count) * size_of(tensor.request.dtype);
}

std::vector<ReadyTensor> take_fused(std::deque<ReadyTensor>& ready, std::size_t threshold) {
  std::vector<ReadyTensor> batch;
  batch.push_back(std::move(ready.front()));
  ready.pop_front();
  std::size_t bytes = bytes_of(batch.front());
  for (auto tensor = ready.begin(); tensor != ready.end() && bytes < threshold;) {
    const std::size_t more = bytes_of(*tensor);
    if (may_share(batch.front(), *tensor) && bytes + more <= threshold) {
      bytes += more;
      batch.push_back(std::move(*tensor));
      tensor = ready.erase(tensor);
    } else {
      ++tensor;
    }
  }
  return batch;
}

}  // namespace hvd::detail
