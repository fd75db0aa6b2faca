#include "sharded/shard_bucket.hpp"

#include <algorithm>
#include <utility>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/collectives.hpp>

#include "collectives/device_event.hpp"
#include "collectives/tensor_traits.hpp"
#include "gradients/gradient_weight.hpp"

namespace hvd::detail {

std::vector<BucketRange> bucket_ranges(const NamedTensors& parameters, std::int64_t bytes) {
  const auto& items = parameters.items();
  std::vector<BucketRange> ranges;
  for (std::size_t end = items.size(); end > 0;) {
    const torch::Tensor& last = items[end - 1].second;
    auto total = static_cast<std::int64_t>(last.nbytes());
    std::size_t begin = end - 1;
    for (; begin > 0; --begin) {
      const torch::Tensor& next = items[begin - 1].second;
      const bool alike = next.scalar_type() == last.scalar_type() && next.device() == last.device();
      total += static_cast<std::int64_t>(next.nbytes());
      if (!alike || total > bytes) break;
    }
    ranges.push_back({begin, end});
    end = begin;
  }
  return ranges;
}

ShardRange shard_range(std::int64_t elements, std::int64_t index, std::int64_t size) {
  const std::int64_t least = elements / size;
  const std::int64_t longer = elements % size;
  return {index * least + std::min(index, longer), least + (index < longer ? 1 : 0)};
}

ShardBucket::ShardBucket(Context& context, const GradientPlacement& placement, std::string name,
                         std::size_t group, const ShardedOptimizerOptions& options,
                         const RankInSet& rank, std::vector<NamedTensors::Item> parameters,
                         bool mirrors)
    : context_(context),
      placement_(placement),
      name_(std::move(name)),
      group_(group),
      options_(options),
      parameters_(std::move(parameters)),
      filled_(parameters_.size()) {
  const torch::NoGradGuard no_grad;
  std::int64_t count = 0;
  for (const auto& [of, parameter] : parameters_) {
    offsets_.push_back(count);
    count += parameter.numel();
  }
  values_ = torch::empty({count}, parameters_.front().second.options().requires_grad(false));
  for (std::size_t i = 0; i < parameters_.size(); ++i) move_here(i);
  const auto add_part = [&](std::int64_t index) {
    const ShardRange range = shard_range(count, index, rank.size);
    parts_.push_back({range.begin, values_.narrow(0, range.begin, range.count).clone()});
  };
  add_part(rank.index);
  if (!mirrors) return;
  add_part((rank.index + rank.size - 1) % rank.size);
  mirror_splits_.assign(static_cast<std::size_t>(rank.size), 0);
  mirror_splits_[static_cast<std::size_t>((rank.index + 1) % rank.size)] = shard().numel();
}

void ShardBucket::add(std::size_t parameter, const torch::Tensor& gradient, double factor) {
  const torch::NoGradGuard no_grad;
  if (!gradients_.defined()) gradients_ = placement_.empty_row(values_.numel(), values_.options());
  const torch::Tensor& like = parameters_[parameter].second;
  const torch::Tensor mine =
      gradients_.narrow(0, offsets_[parameter], like.numel()).view(like.sizes());
  scale_(mine.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient), factor);
  filled_[parameter] = true;
  if (!mine.is_cpu()) note_stream(current_stream(mine));
  if (std::find(filled_.begin(), filled_.end(), false) == filled_.end()) send();
}

void ShardBucket::send() {
  if (std::exchange(is_sent_, true)) return;
  const torch::NoGradGuard no_grad;
  if (!gradients_.defined()) gradients_ = placement_.empty_row(values_.numel(), values_.options());
  for (std::size_t i = 0; i < filled_.size(); ++i) {
    if (!filled_[i]) gradients_.narrow(0, offsets_[i], parameters_[i].second.numel()).zero_();
  }
  wait_for_copies();
  AllreduceOptions reduction{.name = name_ + "/gradient",
                             .op = options_.op,
                             .process_set = options_.process_set,
                             .context = &context_};
  if (options_.average_accumulated) reduction.postscale = 1.0 / options_.backward_passes_per_step;
  reduction_ = reducescatter_async(std::exchange(gradients_, {}), reduction, options_.compression);
  filled_.assign(filled_.size(), false);
}

void ShardBucket::note_stream(const c10::Stream& stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

/// Lets the current stream wait for the copies of gradients on other streams, because the reduction
/// waits for the current one only. The program may have made accumulators on several streams.
void ShardBucket::wait_for_copies() {
  if (streams_.empty()) return;
  const c10::Stream current = current_stream(values_);
  for (const c10::Stream& stream : std::exchange(streams_, {})) {
    if (stream == current) continue;
    StreamEvent copied(stream);
    copied.record();
    const c10::DeviceGuard guard(values_.device());
    c10::impl::VirtualGuardImpl(values_.device().type()).block(copied.handle(), current);
  }
}

torch::Tensor ShardBucket::gradient() { return reduction_.wait(); }

void ShardBucket::send_to_mirror() {
  if (parts_.size() == 1) return;  // there is no other rank
  mirroring_ =
      alltoall_async(gradient(), mirror_splits_, {.name = name_ + "/mirror", .context = &context_});
}

std::vector<torch::Tensor> ShardBucket::gradients() {
  std::vector<torch::Tensor> all{gradient()};
  if (mirroring_.valid()) all.push_back(mirroring_.wait().output);
  return all;
}

void ShardBucket::update_parts() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, parameter] = parameters_[i];
    if (parameter.numel() == 0 || parameter.is_alias_of(values_)) continue;
    if (parameter.scalar_type() != values_.scalar_type() ||
        parameter.device() != values_.device()) {
      throw Error(Errc::invalid_argument,
                  fmt::format("ShardedOptimizer: {} was moved to another dtype or device after "
                              "construction",
                              name));
    }
    move_here(i);
  }
  for (ShardPart& part : parts_) {
    part.values.copy_(values_.narrow(0, part.begin, part.values.numel()));
  }
}

void ShardBucket::set_values(const torch::Tensor& values) {
  values_.copy_(values);
  for (const auto& item : parameters_) note_overwritten(item.second);
}

void ShardBucket::move_here(std::size_t parameter) {
  torch::Tensor& moved = parameters_[parameter].second;
  const torch::Tensor mine =
      values_.narrow(0, offsets_[parameter], moved.numel()).view(moved.sizes());
  mine.copy_(moved);
  moved.set_data(mine);
}

void ShardBucket::keep_frozen(const ShardPart& part, const torch::Tensor& before) const {
  const std::int64_t end = part.begin + part.values.numel();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& parameter = parameters_[i].second;
    const std::int64_t first = std::max(offsets_[i], part.begin);
    const std::int64_t count = std::min(offsets_[i] + parameter.numel(), end) - first;
    if (parameter.requires_grad() || count <= 0) continue;
    part.values.narrow(0, first - part.begin, count)
        .copy_(before.narrow(0, first - part.begin, count));
  }
}

void ShardBucket::gather() {
  drop_gradients();
  for (const ShardPart& part : parts_) {
    keep_frozen(part, values_.narrow(0, part.begin, part.values.numel()));
  }
  Submission submission;
  submission.request.name = name_ + "/values";
  submission.request.kind = OpKind::allgather;
  submission.request.dtype = dtype_of(shard());
  submission.request.device = engine_device_of(shard());
  submission.request.shape = shape_of(shard());
  submission.request.process_set = options_.process_set;
  submission.input = data_of(shard());
  submission.allocate = [values = values_](const Shape&) { return data_of(values); };
  submission.keep_alive = std::make_shared<torch::Tensor>(shard());
  submission.ready = record_device_event(shard());
  gathering_ = context_.submit(std::move(submission));
}

void ShardBucket::finish() {
  if (!gathering_.valid()) return;
  std::exchange(gathering_, {}).wait();
  for (const auto& item : parameters_) note_overwritten(item.second);
}

void ShardBucket::drop_gradients() {
  gradients_.reset();
  streams_.clear();
  filled_.assign(filled_.size(), false);
  is_sent_ = false;
  reduction_ = {};
  mirroring_ = {};
}

}  // namespace hvd::detail
