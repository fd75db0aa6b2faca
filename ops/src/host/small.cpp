#include <cstring>

#include "fusion/observed.hpp"
#include "host/allreduce.hpp"
#include "host/operation_name.hpp"
#include "reduce/reduce_all.hpp"

namespace hvd {

std::uint64_t name_of(int stage, const AllreduceCall& call, std::int64_t total) noexcept {
  return name_of(OpKind::allreduce,
                 {static_cast<std::uint64_t>(stage),
                  static_cast<std::uint64_t>(call.dtype) << 8 | static_cast<std::uint64_t>(call.op),
                  call.tensors.size(), static_cast<std::uint64_t>(total)});
}

void say_small(HostGroup& group, const AllreduceCall& call, std::int64_t total) {
  const HostArithmetic arithmetic(Arithmetic::of(call, group.size()));
  CallObserver* const observer = call.tensors.size() == 1 ? nullptr : call.observer;
  observed(observer, &CallObserver::copied_in, [&] {
    std::byte* to = group.outbox(static_cast<std::size_t>(total) * arithmetic.element());
    for (const TensorSlice& tensor : call.tensors) {
      arithmetic.load(to, tensor.input, tensor.count);
      to += static_cast<std::size_t>(tensor.count) * arithmetic.element();
    }
  });
  group.post(name_of(0, call, total));
}

void small_allreduce(HostGroup& group, const AllreduceCall& call, std::int64_t total,
                     FusionBuffer& scratch, Deadline deadline) {
  const HostArithmetic arithmetic(Arithmetic::of(call, group.size()));
  const std::size_t bytes = static_cast<std::size_t>(total) * arithmetic.element();
  const std::uint64_t name = name_of(0, call, total);
  const bool lone = call.tensors.size() == 1;
  CallObserver* const observer = lone ? nullptr : call.observer;

  std::vector<const std::byte*>& from = group.workspace().from;
  from.resize(static_cast<std::size_t>(group.size()));
  for (int position = 0; position < group.size(); ++position) {
    group.hear(position, name, deadline);
    from[static_cast<std::size_t>(position)] = group.heard(position, bytes);
  }
  std::byte* const to = lone ? call.tensors.front().output : scratch.reserve(bytes);
  if (to != nullptr) reduce_all(arithmetic.reduction(), {&to, 1}, from, total);
  group.end_turn();
  group.end_operation();
  if (lone) return;

  observed(observer, &CallObserver::copied_out, [&] {
    const std::byte* result = to;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t size = static_cast<std::size_t>(tensor.count) * arithmetic.element();
      if (tensor.output != nullptr && size > 0) std::memcpy(tensor.output, result, size);
      result += size;
    }
  });
}

}  // namespace hvd
