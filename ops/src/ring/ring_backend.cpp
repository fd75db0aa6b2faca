#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include <hvd/core/backend.hpp>
#include <hvd/core/log.hpp>
#include <hvd/ops/backends.hpp>
#include <hvd/ops/transport.hpp>

#include "fusion/buffer.hpp"
#include "fusion/layout.hpp"
#include "fusion/pack.hpp"
#include "reduce/scale.hpp"
#include "ring/all_gather.hpp"
#include "ring/allreduce.hpp"
#include "ring/barrier.hpp"
#include "ring/broadcast.hpp"
#include "ring/gather_blocks.hpp"
#include "ring/plan.hpp"

namespace hvd {
namespace {

class RingBackend final : public Backend {
 public:
  explicit RingBackend(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)), plan_(plan_ring(transport_->rank(), transport_->size())) {
    if (log_enabled(LogLevel::plan)) {
      log(LogLevel::plan, transport_->rank(),
          fmt::format("host memory: ring over {}, one-shot when small", transport_->name()));
    }
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "ring"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override {
    const bool mean_of_booleans =
        kind == OpKind::allreduce && dtype == DType::boolean && op == ReduceOp::average;
    return device.kind == Device::Kind::cpu && !mean_of_booleans;
  }

  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;

  void barrier(Deadline deadline) override {
    check();
    dissemination_barrier(*transport_, deadline);
  }

  void abort() noexcept override {
    aborted_.store(true, std::memory_order_relaxed);
    transport_->abort();
  }

 private:
  [[nodiscard]] int size() const noexcept { return transport_->size(); }
  /// A lone rank never enters its transport, which otherwise notices.
  void check() const {
    if (aborted_.load(std::memory_order_relaxed)) throw Error(Errc::aborted, "aborted");
  }
  void reduce_alone(const AllreduceCall& call) const;
  void run(const Reduction& job, Deadline deadline);

  std::unique_ptr<Transport> transport_;
  RingPlan plan_;
  FusionBuffer fused_;
  FusionBuffer scratch_;
  std::atomic<bool> aborted_{false};
};

/// The reduction of one contribution is that contribution; only the factors are left.
void RingBackend::reduce_alone(const AllreduceCall& call) const {
  for (const TensorSlice& tensor : call.tensors) {
    scale(call.dtype, tensor.output, tensor.input, tensor.count, call.prescale);
    scale(call.dtype, tensor.output, tensor.output, tensor.count, call.postscale);
  }
}

void RingBackend::run(const Reduction& job, Deadline deadline) {
  if (prefers_one_shot(job.bytes(), size())) {
    one_shot_allreduce(*transport_, job, scratch_, deadline);
  } else {
    ring_allreduce(*transport_, plan_, job, deadline);
  }
}

void RingBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  check();
  if (size() == 1) return reduce_alone(call);
  const FusionLayout layout = layout_of(call.tensors, size());
  if (layout.total() == 0) return;

  const Accumulator accumulator = Accumulator::of(call);
  Reduction job{.dtype = accumulator.dtype,
                .op = accumulator.widened ? ReduceOp::sum : call.op,
                .lanes = accumulator.lanes,
                .bounds = layout.bounds(),
                .own = nullptr,
                .result = nullptr,
                .divide = call.op == ReduceOp::average && !accumulator.widened,
                .postscale = accumulator.widened ? 1.0 : call.postscale};

  if (call.tensors.size() == 1 && !accumulator.widened) {  // no copy: straight into the output
    const TensorSlice& tensor = call.tensors.front();
    job.own = tensor.input;
    job.result = tensor.output;
    if (call.prescale != 1.0) {
      scale(call.dtype, tensor.output, tensor.input, tensor.count, call.prescale);
      job.own = tensor.output;
    }
    return run(job, deadline);
  }
  job.result = fused_.reserve(job.bytes());
  job.own = job.result;
  pack(call, layout, accumulator, size(), job.result);
  run(job, deadline);
  unpack(call, layout, accumulator, size(), job.result);
}

void RingBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  check();
  const GatherBlocks blocks(call, size());
  if (blocks.total() == 0) return;
  // One tensor's blocks already lie in rank order in its output.
  const bool in_place = call.tensors.size() == 1;
  std::byte* const data = in_place ? call.tensors.front().output
                                   : fused_.reserve(static_cast<std::size_t>(blocks.total()));
  blocks.pack(call, transport_->rank(), data);
  ring_all_gather(*transport_, plan_, data, blocks.bounds(), 1, deadline);
  if (!in_place) blocks.unpack(call, data);
}

void RingBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  check();
  const bool root = call.root == transport_->rank();
  const std::size_t element = size_of(call.dtype);
  const auto bytes_of = [&](const TensorSlice& tensor) {
    return static_cast<std::size_t>(tensor.count) * element;
  };
  if (root) {
    for (const TensorSlice& tensor : call.tensors) {
      if (tensor.count == 0 || tensor.output == tensor.input) continue;
      std::memcpy(tensor.output, tensor.input, bytes_of(tensor));
    }
  }
  if (size() == 1) return;
  if (call.tensors.size() == 1) {
    const TensorSlice& tensor = call.tensors.front();
    return broadcast_bytes(*transport_, tensor.input, tensor.output, bytes_of(tensor), call.root,
                           deadline);
  }
  std::size_t total = 0;
  for (const TensorSlice& tensor : call.tensors) total += bytes_of(tensor);
  std::byte* const fused = fused_.reserve(total);
  const auto copy_each = [&](auto copy) {
    std::size_t offset = 0;
    for (const TensorSlice& tensor : call.tensors) {
      if (tensor.count != 0) copy(tensor, fused + offset);
      offset += bytes_of(tensor);
    }
  };
  if (root) {
    copy_each([&](const TensorSlice& tensor, std::byte* at) {
      std::memcpy(at, tensor.input, bytes_of(tensor));
    });
  }
  broadcast_bytes(*transport_, fused, fused, total, call.root, deadline);
  if (!root) {
    copy_each([&](const TensorSlice& tensor, std::byte* at) {
      std::memcpy(tensor.output, at, bytes_of(tensor));
    });
  }
}

}  // namespace

std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport) {
  return std::make_unique<RingBackend>(std::move(transport));
}

}  // namespace hvd
