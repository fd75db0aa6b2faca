#include "group_backend.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/internal/c10d_store.hpp>
#include <hvd/torch/sparse.hpp>

#include "c10d_error.hpp"
#include "submissions.hpp"

namespace hvd::python {
namespace {

using std::chrono::milliseconds;

// Names are forgotten when there are so many, as in a program whose shapes change all the time.
constexpr std::size_t kMostNames = 1024;

/// What has threads in each group of this process.
struct LiveGroup {
  std::weak_ptr<Context> context;
  std::weak_ptr<AnySource> any_source;
  pid_t process = -1;  ///< the one that has made it
};
std::mutex live_mutex;
std::vector<LiveGroup> live_groups;

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

/// Waits until the operation's name may be used again. Its error is not thrown here, but to the
/// program when it waits for the work.
void await_launch(const hvd::Work& work) {
  if (!work.valid() || work.done()) return;
  try {
    static_cast<void>(work.wait_launched());
  } catch (const Error&) {
  }
}

}  // namespace

GroupBackend::GroupBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           Settings settings)
    : c10d::Backend(rank, size),
      process_(::getpid()),
      settings_(std::move(settings)),
      store_(store),
      any_source_(std::make_shared<AnySource>(store, rank, size)) {
  context_ = with_c10d_errors([&] { return join_group(store, rank, size, settings_); });
  if (settings_.is_default) placement_.emplace(*context_);
  completer_ = std::make_shared<FutureCompleter>(context_->config().stream_ordered);
  const std::lock_guard lock(live_mutex);
  std::erase_if(live_groups, [](const LiveGroup& group) { return group.context.expired(); });
  live_groups.push_back({context_, any_source_, process_});
}

GroupBackend::~GroupBackend() { leave(); }

void GroupBackend::leave() noexcept {
  if (!context_) return;
  if (::getpid() != process_) {
    // A forked child has the memory of the group, but not the threads that would end it.
    static_cast<void>(new auto(std::move(any_source_)));
    static_cast<void>(new auto(std::move(completer_)));
    static_cast<void>(new auto(std::move(context_)));
    return;
  }
  context_->disconnect();  // does nothing after `shutdown`
  any_source_.reset();
  completer_->stop();
  completer_.reset();
  placement_.reset();
  context_.reset();
}

void GroupBackend::leave_all() noexcept {
  const std::lock_guard lock(live_mutex);
  for (const LiveGroup& group : live_groups) {
    if (group.process != ::getpid()) continue;  // as in `leave`
    if (const auto context = group.context.lock()) context->disconnect();
    if (const auto any_source = group.any_source.lock()) any_source->stop();
  }
}

void GroupBackend::shutdown() {
  if (::getpid() != process_) return;
  try {
    context_->shutdown();
  } catch (const Error&) {
    // The operations of a group that failed have thrown its error already, and a rank that ended
    // without destroying its group is no failure of this one.
  }
}

/// Returns a name that all ranks give to this operation, and where its work is kept. The same name
/// comes again after `Names::kCount` such operations, because only operations with the names of
/// earlier steps run without negotiation. If the previous work of this name has not ended,
/// it is waited for.
std::pair<const std::string&, hvd::Work&> GroupBackend::next_name(const Request& request) {
  // Ranks send different numbers of elements in an alltoall.
  const std::int64_t count = request.kind == OpKind::alltoall ? 0 : element_count(request.shape);
  const Alike alike{request.kind, request.dtype, request.op, request.root, count};
  if (names_.size() >= kMostNames && names_.count(alike) == 0) {
    for (auto& [key, names] : names_) {
      for (const hvd::Work& work : names.last) await_launch(work);
    }
    names_.clear();
  }
  Names& names = names_[alike];
  const std::size_t index = names.next++ % Names::kCount;
  std::string& name = names.names[index];
  if (name.empty()) {
    name = fmt::format("{}/{}/{}/{}/{}/{}", to_string(request.kind), to_string(request.dtype),
                       to_string(request.op), request.root, count, index);
  }
  hvd::Work& last = names.last[index];
  await_launch(last);
  last = {};
  return {name, last};
}

/// Runs the operation on the calling thread.
void GroupBackend::run(c10d::OpType type, Submission submission, const Tensors& inputs) {
  at::RecordFunction profile(at::RecordScope::USER_SCOPE);
  std::vector<c10::IValue> shown;
  if (profile.isActive()) {
    shown.assign(inputs.begin(), inputs.end());
    profile._setAsync();  // torch marks the operations of its own backends so
    profile.before(profiling_title(type), &shown);
  }
  with_c10d_errors([&] {
    {
      // The lock is not held while the operation runs, because another thread may have to submit
      // what other ranks wait for.
      const std::lock_guard lock(mutex_);
      ++operations_;
      submission.request.name = next_name(submission.request).first;
    }
    context_->run(std::move(submission));
  });
}

/// Submits the operations. A blocking call of one operation on the CPU runs it instead and returns
/// null, which torch allows.
template <class CallOptions>
GroupBackend::WorkPointer GroupBackend::start(c10d::OpType type,
                                              std::vector<Submission> submissions,
                                              const CallOptions& options, Tensors results,
                                              const Tensors& inputs) {
  if (!options.asyncOp && submissions.size() == 1 &&
      submissions.front().request.device.kind == Device::Kind::cpu) {
    run(type, std::move(submissions.front()), inputs);
    return nullptr;
  }
  auto started = c10::make_intrusive<BackendWork>(getRank(), type, options.timeout,
                                                  std::move(results), inputs, completer_);
  with_c10d_errors([&] {
    const std::lock_guard lock(mutex_);
    ++operations_;
    for (Submission& submission : submissions) {
      const auto [name, last] = next_name(submission.request);
      submission.request.name = name;
      last = context_->submit(std::move(submission));
      started->add(last);
    }
  });
  return started;
}

GroupBackend::WorkPointer GroupBackend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only(tensors);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLREDUCE, {reduced(tensor, options.reduceOp, true, getSize())},
                 options, {tensor}, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::allreduce_sparse(Tensors& tensors,
                                                         const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only(tensors);
  check_arguments(options.reduceOp.op_ != c10d::ReduceOp::PREMUL_SUM,
                  "PREMUL_SUM of a sparse tensor");
  with_c10d_errors([&] {
    const at::NoGradGuard no_grad;
    tensor.copy_(sparse_allreduce(
        tensor, {.op = reduce_op_of(options.reduceOp), .context = context_.get()}));
  });
  return start(c10d::OpType::_ALLREDUCE_SPARSE, {}, options, {tensor}, {tensor});
}

GroupBackend::WorkPointer GroupBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Submission> submissions;
  with_c10d_errors([&] {
    for (const at::Tensor& tensor : tensors) {
      submissions.push_back(reduced(tensor, options.reduceOp, true, getSize()));
    }
  });
  return start(c10d::OpType::ALLREDUCE_COALESCED, std::move(submissions), options, tensors,
               tensors);
}

GroupBackend::WorkPointer GroupBackend::reduce(Tensors& tensors,
                                               const c10d::ReduceOptions& options) {
  at::Tensor& tensor = only(tensors);
  const bool receives = options.rootRank == getRank();
  return with_c10d_errors([&] {
    return start(c10d::OpType::REDUCE, {reduced(tensor, options.reduceOp, receives, getSize())},
                 options, {tensor}, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only(tensors);
  return with_c10d_errors([&] {
    Submission submission = in_place(OpKind::broadcast, tensor, dense(tensor));
    submission.request.root = static_cast<int>(options.rootRank);
    return start(c10d::OpType::BROADCAST, {std::move(submission)}, options, {tensor}, {tensor});
  });
}

GroupBackend::WorkPointer GroupBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  check_arguments(outputs.size() == 1, "backend hvd takes one list of outputs");
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLGATHER, {gathered(only(inputs), outputs.front())}, options,
                 outputs.front(), inputs);
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
               std::move(results), inputs);
}

GroupBackend::WorkPointer GroupBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  return with_c10d_errors([&] {
    return start(c10d::OpType::_ALLGATHER_BASE, {gathered(input, {output})}, options, {output},
                 {input});
  });
}

GroupBackend::WorkPointer GroupBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_arguments(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  std::vector<Submission> submissions;
  with_c10d_errors([&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      submissions.push_back(gathered(inputs[i], {outputs[i]}));
    }
  });
  return start(c10d::OpType::COALESCED, std::move(submissions), options, outputs, inputs);
}

GroupBackend::WorkPointer GroupBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  check_arguments(inputs.size() == 1, "backend hvd takes one list of inputs");
  const at::Tensor& output = only(outputs);
  return with_c10d_errors([&] {
    return start(
        c10d::OpType::REDUCE_SCATTER,
        {reduce_scattered(dense(inputs.front()), output, options.reduceOp, getRank(), getSize())},
        options, {output}, inputs.front());
  });
}

GroupBackend::WorkPointer GroupBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return with_c10d_errors([&] {
    return start(c10d::OpType::_REDUCE_SCATTER_BASE,
                 {reduce_scattered(dense(input), output, options.reduceOp, getRank(), getSize())},
                 options, {output}, {input});
  });
}

GroupBackend::WorkPointer GroupBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_arguments(outputs.size() == inputs.size(), "as many outputs as inputs are needed");
  std::vector<Submission> submissions;
  with_c10d_errors([&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      submissions.push_back(
          reduce_scattered(dense(inputs[i]), outputs[i], options.reduceOp, getRank(), getSize()));
    }
  });
  return start(c10d::OpType::COALESCED, std::move(submissions), options, outputs, inputs);
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
    return start(c10d::OpType::ALLTOALL_BASE,
                 {exchanged(dense(input), std::move(splits), {output})}, options, {output},
                 {input});
  });
}

GroupBackend::WorkPointer GroupBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  std::vector<std::int64_t> splits;
  for (const at::Tensor& input : inputs) splits.push_back(input.numel());
  return with_c10d_errors([&] {
    return start(c10d::OpType::ALLTOALL, {exchanged(dense(inputs), std::move(splits), outputs)},
                 options, outputs, inputs);
  });
}

GroupBackend::WorkPointer GroupBackend::gather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs);
  std::vector<std::int64_t> splits(static_cast<std::size_t>(getSize()));
  splits.at(static_cast<std::size_t>(options.rootRank)) = input.numel();
  const Tensors received = options.rootRank == getRank() ? outputs.at(0) : Tensors{};
  return with_c10d_errors([&] {
    return start(c10d::OpType::GATHER, {exchanged(dense(input), std::move(splits), received)},
                 options, received, inputs);
  });
}

GroupBackend::WorkPointer GroupBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs);
  std::vector<std::int64_t> splits(static_cast<std::size_t>(getSize()));
  at::Tensor input = at::empty({0}, output.options());
  if (options.rootRank == getRank()) {
    input = dense(inputs.at(0));
    std::fill(splits.begin(), splits.end(), output.numel());
  }
  return with_c10d_errors([&] {
    return start(c10d::OpType::SCATTER, {exchanged(input, std::move(splits), {output})}, options,
                 {output}, inputs.empty() ? Tensors{} : inputs.front());
  });
}

/// A message is a broadcast between two ranks. Its name is not used again, so that any number of
/// messages may be on their way.
GroupBackend::WorkPointer GroupBackend::message(const at::Tensor& tensor, int from, int to,
                                                int tag) {
  const bool sends = from == getRank();
  auto started = c10::make_intrusive<BackendWork>(
      getRank(), sends ? c10d::OpType::SEND : c10d::OpType::RECV, c10d::kUnsetTimeout,
      Tensors{tensor}, Tensors{tensor}, completer_);
  with_c10d_errors([&] {
    Submission submission = in_place(OpKind::broadcast, tensor, dense(tensor));
    if (sends) submission.finish = nullptr;
    submission.request.root = from;
    submission.request.process_set = pair_set(from, to, getSize()).id;
    ++operations_;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(messages_mutex_);
      number = messages_[{submission.request.process_set, tag}]++;
    }
    submission.request.name = fmt::format("message/{}/{}", tag, number);
    const hvd::Work work = context_->submit(std::move(submission));
    if (sends) any_source_->sends(to, tag, number, work);
    started->add(work);
  });
  return started;
}

GroupBackend::WorkPointer GroupBackend::send(Tensors& tensors, int to, int tag) {
  return message(only(tensors), getRank(), to, tag);
}

GroupBackend::WorkPointer GroupBackend::recv(Tensors& tensors, int from, int tag) {
  return message(only(tensors), from, getRank(), tag);
}

GroupBackend::WorkPointer GroupBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor tensor = only(tensors);
  const auto self = c10::intrusive_ptr<GroupBackend>::unsafe_reclaim_from_nonowning(this);
  return c10::make_intrusive<AnySourceWork>(
      getRank(), settings_.timeout, Tensors{tensor},
      [self, tensor, tag](milliseconds timeout) -> AnySourceWork::Received {
        for (;;) {
          const AnySource::Message said = self->any_source_->next(tag, timeout);
          if (said.from < 0) return {};
          if (self->was_received(said.from, tag, said.number)) continue;
          return {said.from, self->message(tensor, said.from, self->getRank(), tag)};
        }
      });
}

/// A receive that names its sender takes messages that were announced too.
bool GroupBackend::was_received(int from, int tag, std::uint64_t number) {
  const std::lock_guard lock(messages_mutex_);
  return messages_[{pair_set(from, getRank(), getSize()).id, tag}] > number;
}

GroupBackend::WorkPointer GroupBackend::barrier(const c10d::BarrierOptions& options) {
  Submission submission;
  submission.request.kind = OpKind::barrier;
  submission.request.dtype = DType::u8;
  return start(c10d::OpType::BARRIER, {std::move(submission)}, options, {}, {});
}

/// The ranks meet in the store, so that the group works on after a rank was late. Programs look for
/// gloo's texts.
void GroupBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? settings_.timeout : options.timeout;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(messages_mutex_);
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
    fail(
        fmt::format("Rank {} successfully reached monitoredBarrier, but received errors "
                    "while waiting for send/recv from rank 0, which had no answer of {}",
                    getRank(), missing));
  }
  const Deadline deadline = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    try {
      store_->wait({key(rank)}, std::max(left, milliseconds{1}));
      store_->deleteKey(key(rank));
    } catch (const c10::Error&) {
      missing.push_back(rank);
      if (!wait_all_ranks) break;
    }
  }
  const std::string late =
      fmt::format("{} {}", missing.size() > 1 ? "Ranks" : "Rank", fmt::join(missing, ", "));
  store_->set(key("all"), missing.empty() ? "" : late);
  if (missing.empty()) {
    // All ranks are here, so they have read the answer of the barrier before.
    if (number > 0) store_->deleteKey(fmt::format("monitored/{}/all", number - 1));
    return;
  }
  if (timeout <= milliseconds{0}) {
    fail("Rank 0 timed out in monitoredBarrier after 0 ms");
  }
  fail(fmt::format("{} failed to pass monitoredBarrier in {} ms", late, timeout.count()));
}

}  // namespace hvd::python
