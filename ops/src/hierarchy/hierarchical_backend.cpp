#include "hierarchy/hierarchical_backend.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/topology.hpp>
#include <hvd/ops/backends.hpp>

#include "fusion/identity.hpp"

namespace hvd {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + FusionBuffer::kAlignment - 1) / FusionBuffer::kAlignment *
         FusionBuffer::kAlignment;
}

bool is_floating_point(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

/// Integer means travel widened. And only a sum's identity element stays one when it is scaled.
bool takes_one_step(const AllreduceCall& call) {
  if (call.op == ReduceOp::average) return !is_floating_point(call.dtype);
  return call.op != ReduceOp::sum && call.prescale != 1.0;
}

}  // namespace

/// This rank's part of every tensor of a call, in one buffer.
class HierarchicalBackend::Slices {
 public:
  Slices(const Lanes& lanes, std::span<const TensorSlice> tensors, DType dtype)
      : lanes_(lanes), tensors_(tensors), value_(size_of(dtype)) {
    for (const TensorSlice& tensor : tensors_) {
      offsets_.push_back(bytes_);
      const std::vector<std::int64_t>& counts = counts_.emplace_back(counts_of(tensor.count));
      bytes_ += aligned(bytes(counts[static_cast<std::size_t>(lanes_.place)]));
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * value_;
  }
  /// Elements of tensor i that each rank of the host has.
  [[nodiscard]] std::span<const std::int64_t> counts(std::size_t i) const { return counts_[i]; }
  [[nodiscard]] std::byte* slice(std::byte* buffer, std::size_t i) const {
    return buffer + offsets_[i];
  }
  /// The n-th lane of this rank, of every tensor.
  [[nodiscard]] std::vector<TensorSlice> lane(std::byte* buffer, int n) const {
    std::vector<TensorSlice> parts;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::int64_t elements = tensors_[i].count;
      const int lane = lanes_.first() + n;
      const std::int64_t begin = lanes_.offset(elements, lane);
      std::byte* const data =
          slice(buffer, i) + bytes(begin - lanes_.offset(elements, lanes_.first()));
      parts.push_back({data, data, lanes_.offset(elements, lane + 1) - begin});
    }
    return parts;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> counts_of(std::int64_t elements) const {
    std::vector<std::int64_t> counts;
    for (std::size_t place = 0; place < lanes_.host.size(); ++place) {
      counts.push_back(lanes_.offset(elements, lanes_.begin[place + 1]) -
                       lanes_.offset(elements, lanes_.begin[place]));
    }
    return counts;
  }

  const Lanes& lanes_;
  std::span<const TensorSlice> tensors_;
  std::size_t value_;
  std::vector<std::size_t> offsets_;
  std::vector<std::vector<std::int64_t>> counts_;
  std::size_t bytes_ = 0;
};

HierarchicalBackend::HierarchicalBackend(std::unique_ptr<Backend> flat,
                                         std::unique_ptr<Backend> host, Lanes lanes, int ranks,
                                         Deadline deadline)
    : ranks_(ranks), flat_(std::move(flat)), host_(std::move(host)), lanes_(std::move(lanes)) {
  for (const std::vector<int>& owners : lanes_.owners) {
    across_.push_back(flat_->subset(owners, deadline));
  }
}

bool HierarchicalBackend::supports(OpKind kind, Device device, DType dtype,
                                   ReduceOp op) const noexcept {
  return flat_->supports(kind, device, dtype, op) && host_->supports(kind, device, dtype, op);
}

void HierarchicalBackend::abort() noexcept {
  flat_->abort();
  host_->abort();
}

void HierarchicalBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  if (takes_one_step(call)) return flat_->allreduce(call, deadline);
  const ReduceOp op = call.op == ReduceOp::average ? ReduceOp::sum : call.op;
  const Slices slices(lanes_, call.tensors, call.dtype);
  std::byte* const buffer = slices_.reserve(slices.size());
  std::byte* const nothing = reserve_absent(call, op);

  std::vector<ScatterSlice> contributions;
  std::vector<GatherSlice> results;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const TensorSlice& tensor = call.tensors[i];
    std::byte* const slice = slices.slice(buffer, i);
    contributions.push_back({tensor.input ? tensor.input : nothing, slice, slices.counts(i)});
    results.push_back({slice, tensor.output ? tensor.output : nothing, slices.counts(i)});
  }
  host_->reducescatter({contributions, call.device, call.dtype, op, call.prescale, 1.0}, deadline);
  const int contributors = call.contributors > 0 ? call.contributors : ranks_;
  for (std::size_t n = 0; n < across_.size(); ++n) {
    const std::vector<TensorSlice> lane = slices.lane(buffer, static_cast<int>(n));
    across_[n]->allreduce(
        {lane, call.device, call.dtype, call.op, 1.0, call.postscale, contributors, nullptr},
        deadline);
  }
  host_->allgather({results, call.device, call.dtype}, deadline);
}

/// Room for the largest tensor that this rank has no data for, or no use; the identity is in it.
std::byte* HierarchicalBackend::reserve_absent(const AllreduceCall& call, ReduceOp op) {
  std::int64_t most = 0;
  for (const TensorSlice& tensor : call.tensors) {
    if (!tensor.input || !tensor.output) most = std::max(most, tensor.count);
  }
  if (most == 0) return nullptr;
  std::byte* const memory = absent_.reserve(static_cast<std::size_t>(most) * size_of(call.dtype));
  fill_identity(call.dtype, op, memory, most);
  return memory;
}

std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> flat,
                                                   std::unique_ptr<Backend> host,
                                                   const Topology& topology, Deadline deadline) {
  Lanes lanes = plan_lanes(topology.host_of, topology.rank);
  log(LogLevel::plan, topology.rank,
      fmt::format("several hosts: {} lanes, {} of them this rank's; {} within the host, {} across",
                  lanes.count, lanes.owners.size(), host ? host->name() : flat->name(),
                  flat->name()));
  if (!host) host = flat->subset(lanes.host, deadline);
  return std::make_unique<HierarchicalBackend>(std::move(flat), std::move(host), std::move(lanes),
                                               topology.size, deadline);
}

}  // namespace hvd
