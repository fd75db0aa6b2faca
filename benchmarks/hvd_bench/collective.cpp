#include "collective.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <vector>

#include <hvd/ops/point_to_point.hpp>

#include "elements.hpp"
#include "engine.hpp"
#include "gpu.hpp"
#include "slots.hpp"

namespace hvd::bench {
namespace {

/// Returns rank `rank`'s element: 1, 2 or 3, so that sums are exact. For a product it is 2 on one
/// rank only.
int value_of(ReduceOp op, int rank, std::int64_t index, int ranks) {
  if (op == ReduceOp::product) return index % ranks == rank ? 2 : 1;
  return 1 + static_cast<int>((index + rank) % 3);
}

double expected_of(DType dtype, ReduceOp op, std::int64_t index, int ranks) {
  if (dtype == DType::boolean) return 1;
  double sum = 0;
  double least = 3;
  double most = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const double value = value_of(op, rank, index, ranks);
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  switch (op) {
    case ReduceOp::sum:  // sums of integers wrap
      if (dtype == DType::i8) return static_cast<std::int8_t>(static_cast<std::int64_t>(sum));
      if (dtype == DType::u8) return static_cast<std::uint8_t>(static_cast<std::int64_t>(sum));
      return sum;
    case ReduceOp::min:
      return least;
    case ReduceOp::max:
      return most;
    case ReduceOp::product:
      return 2;
    case ReduceOp::average:
      break;
  }
  return tolerance(dtype) == 0 ? std::trunc(sum / ranks) : sum / ranks;
}

class Base : public Collective {
 protected:
  Base(Context& context, const Options& options, const Extent& extent)
      : context_(context), options_(options), count_(extent.count) {}

  /// Returns the arena of the inputs with `--arena`, or null for private memory.
  [[nodiscard]] static std::shared_ptr<Arena> home(const std::shared_ptr<Arena>& arena,
                                                   const Options& options) {
    if (!options.arena) return nullptr;
    if (!arena) throw std::runtime_error("--arena: the ranks share no memory");
    return arena;
  }
  [[nodiscard]] std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(count) * size_of(options_.dtype);
  }
  /// Overwrites what an earlier run received. Otherwise a check would not notice that nothing
  /// arrives.
  static void clear(std::span<std::byte> output) {
    std::fill(output.begin(), output.end(), std::byte{0});  // no rank fills in a zero
  }
  void fill(std::byte* data, ReduceOp op) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      store(options_.dtype, data, i, value_of(op, context_.rank(), i, context_.size()));
    }
  }
  /// Returns how many elements are not those of a reduction of what the ranks filled in.
  [[nodiscard]] std::int64_t count_wrong_results(const std::byte* data) const {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      // The values repeat after lcm(3, ranks) elements; recomputing them is cheap enough.
      const double expected = expected_of(options_.dtype, options_.op, i, context_.size());
      const double error = std::fabs(load(options_.dtype, data, i) - expected);
      if (!(error <= tolerance(options_.dtype) * expected)) ++wrong;
    }
    return wrong;
  }
  /// Returns how many elements are not those that `rank` filled in.
  [[nodiscard]] std::int64_t count_not_from(int rank, const std::byte* data) const {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      if (!is_from(rank, data, i)) ++wrong;
    }
    return wrong;
  }
  /// Returns whether the element has the value that `rank` filled in.
  [[nodiscard]] bool is_from(int rank, const std::byte* data, std::int64_t i) const {
    const int value = value_of(ReduceOp::sum, rank, i, context_.size());
    return load(options_.dtype, data, i) == (options_.dtype == DType::boolean ? 1.0 : value);
  }

  Context& context_;
  const Options& options_;
  std::int64_t count_;
};

/// Runs in place, as gradients are reduced.
class Allreduce final : public Base {
 public:
  Allreduce(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent),
        engine_(options.engine ? std::make_unique<Engine>() : nullptr),
        slots_(extent.bytes, home(engine_ ? engine_->arena() : context.arena(), options)) {
    reduce_.name = "hvd_bench";
    reduce_.op = options.op;
    reduce_.context = &context;
  }
  void run(std::size_t index) override { reduce(slots_[index]); }
  std::int64_t check() override {
    std::byte* const data = slots_[0];
    fill(data, options_.op);
    reduce(data);
    const std::int64_t wrong = count_wrong_results(data);
    std::fill_n(data, bytes(count_), std::byte{0});  // sums of zeros stay small
    return wrong;
  }

 private:
  void reduce(std::byte* data) {
    if (engine_) return engine_->allreduce(data, count_, options_);
    allreduce(data, data, count_, options_.dtype, reduce_);
  }

  std::unique_ptr<Engine> engine_;  // if null, the context's engine is used
  Slots slots_;
  AllreduceOptions reduce_;
};

class Broadcast final : public Base {
 public:
  Broadcast(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent), slots_(extent.bytes, home(context.arena(), options)) {}
  void run(std::size_t index) override { broadcast(slots_[index]); }
  std::int64_t check() override {
    std::byte* const data = slots_[0];
    if (context_.rank() == options_.root) {
      fill(data, ReduceOp::sum);
    } else {
      clear({data, bytes(count_)});
    }
    broadcast(data);
    return count_not_from(options_.root, data);
  }

 private:
  void broadcast(std::byte* data) {
    hvd::broadcast(data, count_, options_.dtype, options_.root,
                   {.name = "hvd_bench", .context = &context_});
  }

  Slots slots_;
};

class Allgather final : public Base {
 public:
  Allgather(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent),
        inputs_(bytes(extent.count), home(context.arena(), options)),
        outputs_(Slots::count(extent.bytes), Bytes(extent.bytes)) {}
  void run(std::size_t index) override {
    gather(inputs_[index], outputs_[index % outputs_.size()]);
  }
  std::int64_t check() override {
    fill(inputs_[0], ReduceOp::sum);
    Bytes& output = outputs_.front();
    clear(output);
    gather(inputs_[0], output);
    const auto expected = bytes(count_) * static_cast<std::size_t>(context_.size());
    if (output.size() != expected) return count_ * context_.size();
    std::int64_t wrong = 0;
    for (int rank = 0; rank < context_.size(); ++rank) {
      const std::byte* const part = output.data() + bytes(count_) * static_cast<std::size_t>(rank);
      for (std::int64_t i = 0; i < count_; ++i) {
        if (!is_from(rank, part, i)) ++wrong;
      }
    }
    return wrong;
  }

 private:
  void gather(const std::byte* input, Bytes& output) {
    allgather_async(input, count_, options_.dtype, output,
                    {.name = "hvd_bench", .context = &context_})
        .wait();
  }

  Slots inputs_;
  std::vector<Bytes> outputs_;
};

/// The size is that of the input; every rank gets its part.
class Reducescatter final : public Base {
 public:
  Reducescatter(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent), inputs_(extent.bytes, home(context.arena(), options)) {
    reduce_.name = "hvd_bench";
    reduce_.op = options.op;
    reduce_.context = &context;
  }
  void run(std::size_t index) override { reduce(inputs_[index]); }
  std::int64_t check() override {
    fill(inputs_[0], options_.op);
    clear(output_);
    reduce(inputs_[0]);
    const std::int64_t ranks = context_.size();
    const std::int64_t rank = context_.rank();
    const std::int64_t begin = rank * (count_ / ranks) + std::min(rank, count_ % ranks);
    const std::int64_t own = count_ / ranks + (rank < count_ % ranks ? 1 : 0);
    if (output_.size() != bytes(own)) return own;
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < own; ++i) {
      const double expected = expected_of(options_.dtype, options_.op, begin + i, context_.size());
      const double error = std::fabs(load(options_.dtype, output_.data(), i) - expected);
      if (!(error <= tolerance(options_.dtype) * expected)) ++wrong;
    }
    return wrong;
  }

 private:
  void reduce(const std::byte* input) {
    reducescatter_async(input, count_, options_.dtype, output_, reduce_).wait();
  }

  Slots inputs_;
  Bytes output_;
  AllreduceOptions reduce_;
};

/// Uses equal splits. The size is that of the input, which is also that of the output.
class Alltoall final : public Base {
 public:
  Alltoall(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent),
        inputs_(extent.bytes, home(context.arena(), options)),
        splits_(static_cast<std::size_t>(context.size()), extent.count / context.size()) {}
  void run(std::size_t index) override { exchange(inputs_[index]); }
  std::int64_t check() override {
    fill(inputs_[0], ReduceOp::sum);
    clear(output_);
    exchange(inputs_[0]);
    if (output_.size() != bytes(count_)) return count_;
    const std::int64_t part = splits_.front();
    std::int64_t wrong = 0;
    for (int rank = 0; rank < context_.size(); ++rank) {
      for (std::int64_t i = 0; i < part; ++i) {
        const int value =
            value_of(ReduceOp::sum, rank, context_.rank() * part + i, context_.size());
        const double expected = options_.dtype == DType::boolean ? 1.0 : value;
        if (load(options_.dtype, output_.data(), rank * part + i) != expected) ++wrong;
      }
    }
    return wrong;
  }

 private:
  void exchange(const std::byte* input) {
    alltoall_async(input, splits_, options_.dtype, output_, received_,
                   {.name = "hvd_bench", .context = &context_})
        .wait();
  }

  Slots inputs_;
  std::vector<std::int64_t> splits_;
  Bytes output_;
  std::vector<std::int64_t> received_;
};

/// Each rank sends to the next one and receives from the previous one, as nccl-tests do.
class SendRecv final : public Base {
 public:
  SendRecv(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent),
        inputs_(extent.bytes, home(context.arena(), options)),
        outputs_(extent.bytes) {
    if (context.size() < 2) throw std::runtime_error("sendrecv needs two ranks");
  }
  void run(std::size_t index) override { exchange(inputs_[index], outputs_[index]); }
  std::int64_t check() override {
    fill(inputs_[0], ReduceOp::sum);
    clear({outputs_[0], bytes(count_)});
    exchange(inputs_[0], outputs_[0]);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      if (!is_from(before(), outputs_[0], i)) ++wrong;
    }
    return wrong;
  }

 private:
  [[nodiscard]] int before() const {
    return (context_.rank() + context_.size() - 1) % context_.size();
  }
  void exchange(const std::byte* from, std::byte* to) {
    const int next = (context_.rank() + 1) % context_.size();
    const Work sent =
        send_async(from, count_, options_.dtype, next, {.name = "hvd_bench", .context = &context_});
    recv_async(to, count_, options_.dtype, before(), {.name = "hvd_bench", .context = &context_})
        .wait();
    sent.wait();
  }

  Slots inputs_;
  Slots outputs_;
};

/// An allreduce or a broadcast in place, in the memory of the rank's GPU.
class OnGpu final : public Base {
 public:
  OnGpu(Context& context, const Options& options, const Extent& extent)
      : Base(context, options, extent),
        gpu_(gpu_of(context.topology().local_rank)),
        stride_((extent.bytes + kAlignment - 1) / kAlignment * kAlignment),
        slots_(Slots::count(stride_)),
        memory_(make_gpu_memory(gpu_, stride_ * slots_)) {}
  void run(std::size_t index) override { run_at(memory_->data() + index % slots_ * stride_); }
  std::int64_t check() override {
    const bool broadcasts = options_.kind == OpKind::broadcast;
    Bytes data(bytes(count_));
    if (!broadcasts || context_.rank() == options_.root) {
      fill(data.data(), broadcasts ? ReduceOp::sum : options_.op);
    }
    memory_->put(memory_->data(), data.data(), data.size());
    run_at(memory_->data());
    memory_->get(data.data(), memory_->data(), data.size());
    const std::int64_t wrong =
        broadcasts ? count_not_from(options_.root, data.data()) : count_wrong_results(data.data());
    data.assign(data.size(), std::byte{0});  // sums of zeros stay small
    memory_->put(memory_->data(), data.data(), data.size());
    return wrong;
  }

 private:
  static constexpr std::size_t kAlignment = 512;  // as that of LibTorch's tensors

  void run_at(std::byte* data) {
    Submission submission;
    submission.request.kind = options_.kind;
    submission.request.name = "hvd_bench";
    submission.request.dtype = options_.dtype;
    submission.request.op = options_.op;
    submission.request.root = options_.root;
    submission.request.shape = {count_};
    submission.request.device = {Device::Kind::cuda, gpu_};
    submission.input = submission.output = data;
    context_.run(std::move(submission));
  }

  int gpu_;
  std::size_t stride_;
  std::size_t slots_;
  std::unique_ptr<GpuMemory> memory_;
};

class Barrier final : public Collective {
 public:
  explicit Barrier(Context& context) : context_(context) {}
  void run(std::size_t) override { barrier({.name = "hvd_bench", .context = &context_}); }
  std::int64_t check() override { return 0; }

 private:
  Context& context_;
};

}  // namespace

Extent extent_of(const Options& options, std::size_t bytes, int ranks) {
  if (options.kind == OpKind::barrier) return {};
  const std::size_t element = size_of(options.dtype);
  const bool whole_parts = options.kind == OpKind::allgather || options.kind == OpKind::alltoall;
  const std::size_t parts = whole_parts ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t count = std::max<std::size_t>(bytes / (element * parts), 1);
  const std::size_t total = count * parts;
  // nccl-tests counts a rank's input: a part of an allgather, and the whole buffer otherwise.
  return {total * element,
          static_cast<std::int64_t>(options.kind == OpKind::allgather ? count : total)};
}

double bus_factor(OpKind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case OpKind::allreduce:
      return 2 * (n - 1) / n;
    case OpKind::allgather:
    case OpKind::reducescatter:
    case OpKind::alltoall:
      return (n - 1) / n;
    default:
      return 1;
  }
}

std::unique_ptr<Collective> make_collective(Context& context, const Options& options,
                                            const Extent& extent) {
  if (options.cuda) return std::make_unique<OnGpu>(context, options, extent);
  if (options.sendrecv) return std::make_unique<SendRecv>(context, options, extent);
  switch (options.kind) {
    case OpKind::allreduce:
      return std::make_unique<Allreduce>(context, options, extent);
    case OpKind::broadcast:
      return std::make_unique<Broadcast>(context, options, extent);
    case OpKind::allgather:
      return std::make_unique<Allgather>(context, options, extent);
    case OpKind::reducescatter:
      return std::make_unique<Reducescatter>(context, options, extent);
    case OpKind::alltoall:
      return std::make_unique<Alltoall>(context, options, extent);
    default:
      break;
  }
  return std::make_unique<Barrier>(context);
}

}  // namespace hvd::bench
