#include "group_backend.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <pybind11/pybind11.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/internal/c10d_store.hpp>
#include <hvd/torch/sparse.hpp>

#include "c10d_error.hpp"
#include "collectives/tensor_traits.hpp"

namespace hvd::python {
namespace {

using detail::data_of;
using std::chrono::milliseconds;

// Names are forgotten when there are so many, as in a program whose shapes change all the time.
constexpr std::size_t kMostNames = 1024;

std::mutex live_mutex;
std::vector<std::weak_ptr<Context>> live_contexts;  // of all groups of this process

/// Gives all ranks the secret that the launcher gave them, or one of rank 0. The latter goes
/// through the store, which is as open as torch.distributed itself.
UniqueFd share_secret(c10d::Store& store, int rank) {
  const std::string key = "hvd/secret";
  if (rank == 0) {
    const Secret fresh = Secret::random();
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(fresh.bytes().data());
    store.set(key, std::vector<std::uint8_t>(bytes, bytes + Secret::kSize));
  }
  const std::vector<std::uint8_t> shared = store.get(key);
  if (shared.size() != Secret::kSize) {
    throw Error(Errc::protocol, "malformed secret in the store of the process group");
  }
  return Secret(std::as_bytes(std::span(shared)).first<Secret::kSize>()).to_inheritable_fd();
}

std::unique_ptr<Context> join_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                    int size, const GroupBackend::Settings& settings) {
  Config config;
  try {
    config = Config::from_environment();
  } catch (const Error&) {
    // The ranks come from the arguments of init_process_group; variables may say something else.
    config = Config::settings_from_environment();
  }
  config.rank = rank;
  config.size = size;
  config.local_rank = config.local_size = config.cross_rank = config.cross_size = -1;
  config.rendezvous = Rendezvous::none;
  config.start_timeout = settings.timeout;
  config.stall_abort = settings.timeout;
  config.collective_timeout = settings.timeout;
  config.shutdown_timeout = settings.timeout;
  if (!settings.is_default) {
    config.status_fd = -1;
    config.metrics_port = 0;
    config.timeline.clear();
  }
  const c10::intrusive_ptr<c10d::Store> own = store->clone();  // other threads may wait on `store`
  UniqueFd secret;
  if (size > 1 && config.secret_fd < 0 && config.secret_file.empty()) {
    secret = share_secret(*own, rank);
    config.secret_fd = secret.get();
  }
  return make_context(config,
                      detail::store_over(own, "the store of process group " + settings.name));
}

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::average;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    default:
      break;
  }
  throw Error(Errc::unsupported, "backend hvd has no such reduce operation for this collective");
}

bool is_bitwise(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR ||
         op.op_ == c10d::ReduceOp::BXOR;
}

void combine_bits(at::Tensor& into, const at::Tensor& from, const c10d::ReduceOp& op) {
  if (op.op_ == c10d::ReduceOp::BAND) into.bitwise_and_(from);
  if (op.op_ == c10d::ReduceOp::BOR) into.bitwise_or_(from);
  if (op.op_ == c10d::ReduceOp::BXOR) into.bitwise_xor_(from);
}

at::Tensor& only(std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "backend hvd takes one tensor per call, got ", tensors.size());
  return tensors.front();
}

/// Returns the values in one dimension. Shares memory with `tensor` where it is contiguous.
at::Tensor flat(const at::Tensor& tensor) {
  detail::require_supported(tensor);
  return detail::resolved(detail::plain_alias(tensor)).contiguous().reshape({-1});
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(flat(tensor));
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

/// Copies the parts of `from` into the tensors, in order.
void copy_parts(const at::Tensor& from, const std::vector<at::Tensor>& into) {
  const at::NoGradGuard no_grad_here;  // on the engine's thread
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : into) {
    tensor.copy_(from.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

Submission submission_of(OpKind kind, const at::Tensor& input) {
  Submission submission;
  submission.request.kind = kind;
  submission.request.dtype = detail::dtype_of(input);
  submission.request.shape = {input.numel()};
  submission.input = data_of(input);
  submission.keep_alive = std::make_shared<at::Tensor>(input);
  return submission;
}

/// Puts the result of a collective into the tensors, directly where there is one contiguous tensor.
void receive(Submission& submission, const std::vector<at::Tensor>& outputs,
             const at::TensorOptions& like) {
  const std::int64_t count = elements_of(outputs);
  for (const at::Tensor& output : outputs) {
    TORCH_CHECK(output.scalar_type() == like.dtype().toScalarType(),
                "the tensors of a collective need the same dtype");
  }
  const bool direct = outputs.size() == 1 && outputs.front().is_contiguous();
  const at::Tensor memory =
      direct ? detail::plain_alias(outputs.front()) : at::empty({count}, like);
  submission.allocate = [memory, count](const Shape& shape) {
    if (element_count(shape) != count) {
      throw Error(Errc::invalid_argument, fmt::format("the output has {} elements, the result {}",
                                                      count, element_count(shape)));
    }
    return data_of(memory);
  };
  if (!direct) submission.finish = [memory, outputs] { copy_parts(memory, outputs); };
}

/// Reduces or broadcasts `tensor` in place.
Submission in_place(OpKind kind, const at::Tensor& tensor) {
  const at::Tensor memory = flat(tensor);
  Submission submission = submission_of(kind, memory);
  submission.output = data_of(memory);
  if (!memory.is_alias_of(tensor)) {
    submission.finish = [memory, tensor = detail::plain_alias(tensor)] {
      copy_parts(memory, {tensor});
    };
  }
  return submission;
}

Submission reduced(const at::Tensor& tensor, const c10d::ReduceOp& op, bool receives, int size) {
  if (is_bitwise(op)) {
    const at::Tensor input = flat(tensor);
    Submission submission = submission_of(OpKind::allgather, input);
    const at::Tensor all = at::empty({size, input.numel()}, input.options());
    receive(submission, {all}, input.options());
    if (!receives) return submission;
    submission.finish = [all, op, tensor = detail::plain_alias(tensor)] {
      at::Tensor result = all[0];
      for (std::int64_t i = 1; i < all.size(0); ++i) combine_bits(result, all[i], op);
      copy_parts(result, {tensor});
    };
    return submission;
  }
  Submission submission = in_place(OpKind::allreduce, tensor);
  submission.request.op = reduce_op_of(op);
  if (!receives) {
    const at::Tensor scratch = at::empty({tensor.numel()}, tensor.options());
    submission.output = data_of(scratch);
    submission.finish = [scratch] {};  // keeps it alive
  }
  return submission;
}

Submission gathered(const at::Tensor& tensor, const std::vector<at::Tensor>& outputs) {
  const at::Tensor input = flat(tensor);
  Submission submission = submission_of(OpKind::allgather, input);
  receive(submission, outputs, input.options());
  return submission;
}

Submission reduce_scattered(const at::Tensor& input, const at::Tensor& output,
                            const c10d::ReduceOp& op, int size) {
  TORCH_CHECK(input.numel() == output.numel() * size,
              "the input of a reduce_scatter is the group's size times as large as its output");
  Submission submission = submission_of(OpKind::reducescatter, input);
  submission.request.op = reduce_op_of(op);
  receive(submission, {output}, input.options());
  return submission;
}

Submission exchanged(const at::Tensor& input, std::vector<std::int64_t> splits,
                     const std::vector<at::Tensor>& outputs) {
  Submission submission = submission_of(OpKind::alltoall, input);
  submission.request.splits = std::move(splits);
  receive(submission, outputs, input.options());
  return submission;
}

/// Waits until the operation has ended. Its error is for those who have its work.
void await_end(const hvd::Work& work) {
  if (!work.valid() || work.done()) return;
  try {
    work.wait();
  } catch (const Error&) {
  }
}

}  // namespace

GroupBackend::GroupBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           Settings settings)
    : c10d::Backend(rank, size), settings_(std::move(settings)), store_(store) {
  context_ = with_c10d_errors([&] { return join_group(store, rank, size, settings_); });
  const std::lock_guard lock(live_mutex);
  std::erase_if(live_contexts, [](const auto& context) { return context.expired(); });
  live_contexts.push_back(context_);
}

GroupBackend::~GroupBackend() {
  // The engine's threads may need Python's lock to release a tensor.
  std::optional<pybind11::gil_scoped_release> unlocked;
  if (PyGILState_Check()) unlocked.emplace();
  context_->disconnect();  // does nothing after `shutdown`
  completer_.reset();
  context_.reset();
}

void GroupBackend::leave_all() noexcept {
  const std::lock_guard lock(live_mutex);
  for (const std::weak_ptr<Context>& one : live_contexts) {
    if (const std::shared_ptr<Context> context = one.lock()) context->disconnect();
  }
}

void GroupBackend::shutdown() {
  try {
    context_->shutdown();
  } catch (const Error&) {
    // The operations of a group that failed have thrown its error already, and a rank that ended
    // without destroying its group is no failure of this one.
  }
}

c10::intrusive_ptr<c10d::Backend::Options> GroupBackend::getBackendOptions() {
  return c10::make_intrusive<Options>("hvd", settings_.timeout);
}

/// Returns a name that all ranks give to this operation, and where its work is kept. The same name
/// comes again after `Names::kCount` such operations, because only operations with the names of
/// earlier steps run without negotiation. If the previous work of this name has not ended, it is
/// waited for.
std::pair<std::string, hvd::Work*> GroupBackend::next_name(const Request& request) {
  // Ranks send different numbers of elements in an alltoall.
  const std::int64_t count = request.kind == OpKind::alltoall ? 0 : element_count(request.shape);
  std::string key = fmt::format("{}/{}/{}/{}/{}", to_string(request.kind), to_string(request.dtype),
                                to_string(request.op), request.root, count);
  if (names_.size() >= kMostNames && names_.count(key) == 0) {
    for (auto& [name, names] : names_) {
      for (const hvd::Work& work : names.last) await_end(work);
    }
    names_.clear();
  }
  Names& names = names_[key];
  const std::size_t index = names.next++ % Names::kCount;
  hvd::Work& last = names.last[index];
  await_end(last);
  last = {};
  key += fmt::format("/{}", index);
  return {std::move(key), &last};
}

template <class CallOptions>
GroupBackend::WorkPointer GroupBackend::start(c10d::OpType type,
                                              std::vector<Submission> submissions,
                                              const CallOptions& options, Tensors results) {
  const bool blocks = !options.asyncOp && submissions.size() == 1;
  std::vector<hvd::Work> works;
  with_c10d_errors([&] {
    std::unique_lock lock(mutex_);
    ++operations_;
    for (Submission& submission : submissions) {
      hvd::Work* last = nullptr;
      if (submission.request.name.empty()) {
        std::tie(submission.request.name, last) = next_name(submission.request);
      }
      if (blocks) {
        lock.unlock();  // another thread may have to send what other ranks wait for
        context_->run(std::move(submission));
        return;
      }
      works.push_back(context_->submit(std::move(submission)));
      if (last) *last = works.back();
    }
  });
  return c10::make_intrusive<GroupWork>(getRank(), type, options.timeout, std::move(works),
                                        std::move(results), completer_);
}

GroupBackend::WorkPointer GroupBackend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only(tensors);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLREDUCE, {reduced(tensor, options.reduceOp, true, getSize())},
                 options, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::allreduce_sparse(Tensors& tensors,
                                                         const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only(tensors);
  with_c10d_errors([&] {
    const at::NoGradGuard no_grad;
    tensor.copy_(sparse_allreduce(
        tensor, {.op = reduce_op_of(options.reduceOp), .context = context_.get()}));
  });
  return start(c10d::OpType::_ALLREDUCE_SPARSE, {}, options, {tensor});
}

GroupBackend::WorkPointer GroupBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Submission> submissions;
  with_c10d_errors([&] {
    for (const at::Tensor& tensor : tensors) {
      submissions.push_back(reduced(tensor, options.reduceOp, true, getSize()));
    }
  });
  return start(c10d::OpType::ALLREDUCE_COALESCED, std::move(submissions), options, tensors);
}

GroupBackend::WorkPointer GroupBackend::reduce(Tensors& tensors,
                                               const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only(tensors);
  const bool receives = options.rootRank == getRank();
  return with_c10d_errors([&] {
    return start(c10d::OpType::REDUCE, {reduced(tensor, options.reduceOp, receives, getSize())},
                 options, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only(tensors);
  return with_c10d_errors([&] {
    Submission submission = in_place(OpKind::broadcast, tensor);
    submission.request.root = static_cast<int>(options.rootRank);
    return start(c10d::OpType::BROADCAST, {std::move(submission)}, options, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == 1, "backend hvd takes one list of outputs");
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLGATHER, {gathered(only(inputs), outputs.front())}, options,
                 outputs.front());
  });
}

GroupBackend::WorkPointer GroupBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  std::vector<Submission> submissions;
  Tensors results;
  with_c10d_errors([&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors of_this;  // c10d passes a list for each rank
      for (const Tensors& of_rank : outputs) of_this.push_back(of_rank.at(i));
      submissions.push_back(gathered(inputs[i], of_this));
      results.insert(results.end(), of_this.begin(), of_this.end());
    }
  });
  return start(c10d::OpType::ALLGATHER_COALESCED, std::move(submissions), options,
               std::move(results));
}

GroupBackend::WorkPointer GroupBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  return with_c10d_errors([&] {
    return start(c10d::OpType::_ALLGATHER_BASE, {gathered(input, {output})}, options, {output});
  });
}

GroupBackend::WorkPointer GroupBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  std::vector<Submission> submissions;
  with_c10d_errors([&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      submissions.push_back(gathered(inputs[i], {outputs[i]}));
    }
  });
  return start(c10d::OpType::COALESCED, std::move(submissions), options, outputs);
}

GroupBackend::WorkPointer GroupBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(inputs.size() == 1, "backend hvd takes one list of inputs");
  const at::Tensor& output = only(outputs);
  return with_c10d_errors([&] {
    return start(c10d::OpType::REDUCE_SCATTER,
                 {reduce_scattered(flat(inputs.front()), output, options.reduceOp, getSize())},
                 options, {output});
  });
}

GroupBackend::WorkPointer GroupBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return with_c10d_errors([&] {
    return start(c10d::OpType::_REDUCE_SCATTER_BASE,
                 {reduce_scattered(flat(input), output, options.reduceOp, getSize())}, options,
                 {output});
  });
}

GroupBackend::WorkPointer GroupBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  std::vector<Submission> submissions;
  with_c10d_errors([&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      submissions.push_back(
          reduce_scattered(flat(inputs[i]), outputs[i], options.reduceOp, getSize()));
    }
  });
  return start(c10d::OpType::COALESCED, std::move(submissions), options, outputs);
}

GroupBackend::WorkPointer GroupBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  c10d::checkSplitSizes(input_splits, input, getSize());
  c10d::checkSplitSizes(output_splits, output, getSize());
  std::vector<std::int64_t> splits = input_splits;
  const std::int64_t rows = input.dim() == 0 ? 1 : input.size(0);
  if (splits.empty()) splits.assign(static_cast<std::size_t>(getSize()), rows / getSize());
  for (std::int64_t& split : splits) split *= rows == 0 ? 0 : input.numel() / rows;
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLTOALL_BASE, {exchanged(flat(input), std::move(splits), {output})},
                 options, {output});
  });
}

GroupBackend::WorkPointer GroupBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  std::vector<std::int64_t> splits;
  for (const at::Tensor& input : inputs) splits.push_back(input.numel());
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLTOALL, {exchanged(flat(inputs), std::move(splits), outputs)},
                 options, outputs);
  });
}

GroupBackend::WorkPointer GroupBackend::gather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs);
  std::vector<std::int64_t> splits(static_cast<std::size_t>(getSize()));
  splits.at(static_cast<std::size_t>(options.rootRank)) = input.numel();
  const Tensors received = options.rootRank == getRank() ? outputs.at(0) : Tensors{};
  return with_c10d_errors([&] {
    return start(c10d::OpType::GATHER, {exchanged(flat(input), std::move(splits), received)},
                 options, received);
  });
}

GroupBackend::WorkPointer GroupBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs);
  std::vector<std::int64_t> splits(static_cast<std::size_t>(getSize()));
  at::Tensor input = at::empty({0}, output.options());
  if (options.rootRank == getRank()) {
    input = flat(inputs.at(0));
    std::fill(splits.begin(), splits.end(), output.numel());
  }
  return with_c10d_errors([&] {
    return start(c10d::OpType::SCATTER, {exchanged(input, std::move(splits), {output})}, options,
                 {output});
  });
}

/// A message is a broadcast between two ranks. Its name is not used again, so that any number of
/// messages may be on their way.
GroupBackend::WorkPointer GroupBackend::message(Tensors& tensors, int from, int to, int tag) {
  at::Tensor& tensor = only(tensors);
  return with_c10d_errors([&] {
    Submission submission = in_place(OpKind::broadcast, tensor);
    const bool sends = from == getRank();
    if (sends) submission.finish = nullptr;
    submission.request.root = from;
    submission.request.process_set = pair_set(from, to, getSize()).id;
    {
      const std::lock_guard lock(mutex_);
      submission.request.name =
          fmt::format("message/{}/{}", tag, messages_[{submission.request.process_set, tag}]++);
    }
    return start(sends ? c10d::OpType::SEND : c10d::OpType::RECV, {std::move(submission)},
                 c10d::BroadcastOptions{}, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::send(Tensors& tensors, int to, int tag) {
  return message(tensors, getRank(), to, tag);
}

GroupBackend::WorkPointer GroupBackend::recv(Tensors& tensors, int from, int tag) {
  return message(tensors, from, getRank(), tag);
}

GroupBackend::WorkPointer GroupBackend::barrier(const c10d::BarrierOptions& options) {
  Submission submission;
  submission.request.kind = OpKind::barrier;
  submission.request.dtype = DType::u8;
  return start(c10d::OpType::BARRIER, {std::move(submission)}, options, {});
}

/// The ranks meet in the store, so that the group works on after a rank was late.
void GroupBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout =
      options.timeout > milliseconds{0} ? options.timeout : settings_.timeout;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = monitored_++;
  }
  const auto key = [number](const auto& who) {
    return fmt::format("monitored/{}/{}", number, who);
  };
  if (getRank() != 0) {
    store_->set(key(getRank()), "here");
    // Rank 0 may find out only after the whole timeout.
    store_->wait({key("all")}, 2 * timeout);
    const std::string missing = store_->get_to_str(key("all"));
    if (missing.empty()) return;
    C10_THROW_ERROR(DistBackendError, "monitored barrier: no answer of ranks " + missing);
  }
  const Deadline deadline = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    try {
      store_->wait({key(rank)}, std::max(left, milliseconds{1}));
    } catch (const c10::Error&) {
      missing.push_back(rank);
      if (!wait_all_ranks) break;
    }
  }
  std::string text;
  for (const int rank : missing) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  store_->set(key("all"), text);
  if (missing.empty()) return;
  C10_THROW_ERROR(DistBackendError, fmt::format("monitored barrier: no answer of ranks {} in {} ms",
                                                text, timeout.count()));
}

}  // namespace hvd::python
