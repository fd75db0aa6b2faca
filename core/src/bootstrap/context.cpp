#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/context.hpp>
#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/control_channel.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/log.hpp>

#include "base/stop_signals.hpp"
#include "engine/coordinator.hpp"

namespace hvd {
namespace {

constexpr std::size_t kMaxDimensions = 64;

// An unnamed member of a group is called GROUP/NUMBER, which is not longer than other names.
constexpr std::size_t kLongestGroup = kMaxNameBytes - 16;

[[noreturn]] void refuse(const Request& request, std::string_view why) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", detail::described(request), why));
}

/// Returns the number of elements. Throws for negative dimensions and for more than 2⁶³−1 bytes.
std::int64_t checked_count(const Request& request) {
  if (request.shape.size() > kMaxDimensions) refuse(request, "too many dimensions");
  std::int64_t bytes = static_cast<std::int64_t>(size_of(request.dtype));
  bool empty = false;
  for (const std::int64_t dimension : request.shape) {
    if (dimension < 0) refuse(request, "a dimension is negative: " + to_string(request.shape));
    if (dimension == 0) empty = true;
    if (!empty && __builtin_mul_overflow(bytes, dimension, &bytes)) {
      refuse(request, "too many elements: " + to_string(request.shape));
    }
  }
  return empty ? 0 : element_count(request.shape);
}

void check_reduction(const Request& request) {
  if (!can_reduce(request.dtype, request.op)) {
    refuse(request,
           fmt::format("{} is not defined on {}", to_string(request.op), to_string(request.dtype)));
  }
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
    refuse(request, "a scale is not finite");
  }
}

void check_splits(const Request& request, std::size_t ranks) {
  if (request.splits.size() != ranks) {
    refuse(request, fmt::format("{} splits for {} ranks", request.splits.size(), ranks));
  }
  std::int64_t rows = 0;
  for (const std::int64_t split : request.splits) {
    if (split < 0) refuse(request, fmt::format("a split is negative: {}", split));
    if (__builtin_add_overflow(rows, split, &rows)) refuse(request, "the splits overflow");
  }
  if (rows != request.shape.front()) {
    refuse(request, fmt::format("the splits make {} rows and the tensor has {}", rows,
                                request.shape.front()));
  }
}

/// `ranks` are the members of the request's process set.
void validate(const Submission& submission, int rank, const std::vector<int>& ranks) {
  const Request& request = submission.request;
  if (request.name.size() > kMaxNameBytes) refuse(request, "the name is longer than 1,024 bytes");
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) {
    refuse(request, fmt::format("rank {} is not in process set {}", rank, request.process_set));
  }
  if (!request.group.empty() || request.group_size != 0) {
    refuse(request, "only submit_group sets a group");
  }
  if (request.kind > OpKind::barrier) {
    refuse(request, fmt::format("{} is a function of its own", to_string(request.kind)));
  }
  if (request.kind == OpKind::barrier) return;
  const bool is_half = request.dtype == DType::f16 || request.dtype == DType::bf16;
  const bool can_convert =
      request.kind == OpKind::allreduce && is_half && request.device.kind == Device::Kind::cuda;
  if (request.f32_memory && !can_convert) {
    refuse(request, "only an allreduce of f16 or bf16 on a GPU converts f32");
  }
  // Ranks bring data that is ready to the ready fence, and on the CPU all of them must do so.
  if (submission.ready && request.device.kind == Device::Kind::cpu) {
    refuse(request, "data on the CPU must be ready when it is submitted");
  }
  const std::int64_t count = checked_count(request);
  if (count > 0 && !submission.input) refuse(request, "the input is null");
  if (reduces(request.kind)) check_reduction(request);
  if (request.kind == OpKind::broadcast &&
      !std::binary_search(ranks.begin(), ranks.end(), request.root)) {
    refuse(request, fmt::format("root {} is not in the process set of {}", request.root,
                                detail::ranks_text(ranks)));
  }
  if (request.kind == OpKind::allreduce || request.kind == OpKind::broadcast) {
    if (count > 0 && !submission.output) refuse(request, "the output is null");
    return;
  }
  if (request.shape.empty()) refuse(request, "a scalar has no first dimension");
  if (!submission.allocate) refuse(request, "no allocator for the result");
  if (request.kind == OpKind::alltoall) check_splits(request, ranks.size());
}

}  // namespace

struct Context::Impl {
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Session> session;
  std::unique_ptr<detail::Coordinator> coordinator;

  const int exceptions = std::uncaught_exceptions();  ///< on the thread that made the context

  /// Something on which the ranks agree as soon as one of them wants it.
  struct Agreement {
    std::string_view name;
    std::mutex mutex{};  ///< is held while the members below are used
    bool agreed = false;
    bool wanted = false;             ///< by this rank, at its last vote
    std::shared_ptr<float> votes{};  ///< becomes positive if any rank wants it
    Work vote{};                     ///< valid until its result is known
  };
  Agreement stop{.name = "stop_requested"};
  Agreement change{.name = "agree_on_change"};

  std::mutex unnamed_mutex;
  std::map<std::pair<std::int32_t, std::string_view>, std::uint64_t> unnamed;  // by set and kind
  std::uint64_t joins = 0;                                                     // completed

  /// Calls `submit` with the name of the next unnamed call, and returns what it returns. If it
  /// throws, the call takes no name. Otherwise the later unnamed calls of this rank would no longer
  /// match those of ranks that did not make it.
  template <class Submit>
  auto with_next_name(std::int32_t process_set, std::string_view kind, const Submit& submit) {
    const std::lock_guard lock(unnamed_mutex);
    std::uint64_t& number = unnamed[{process_set, kind}];
    auto result = submit(fmt::format("{}.unnamed.{}.{}", kind, joins, number));
    ++number;
    return result;
  }

  std::string next_name(std::int32_t process_set, std::string_view kind) {
    return with_next_name(process_set, kind, [](std::string name) { return name; });
  }

  /// The loop calls it at the end of a join, which comes at the same point in the order of
  /// decisions on every rank. Ranks that had joined have made fewer unnamed calls, so all ranks
  /// count from 0 again. The names contain the number of joins, so that they differ from those of
  /// earlier submissions.
  void joined() {
    const std::lock_guard lock(unnamed_mutex);
    ++joins;
    unnamed.clear();
  }

  /// Throws what a submission that cannot run throws.
  void check(const Submission& submission) const {
    const Request& request = submission.request;
    const auto ranks = coordinator->process_sets().ranks(request.process_set);
    if (!ranks) refuse(request, fmt::format("there is no process set {}", request.process_set));
    validate(submission, session->topology().rank, *ranks);
    coordinator->require_backend(request);
  }

  /// Checks first, since a refused call takes no name.
  void complete(Submission& submission) {
    check(submission);
    Request& request = submission.request;
    if (request.name.empty()) {
      request.name = next_name(request.process_set, to_string(request.kind));
    }
  }

  void vote(Agreement& on) {
    on.votes = std::make_shared<float>(on.wanted ? 1.0F : 0.0F);
    Submission submission;
    submission.request.name = on.name;
    submission.request.op = ReduceOp::average;
    submission.input = submission.output = on.votes.get();
    submission.keep_alive = on.votes;
    complete(submission);
    on.vote = coordinator->submit(std::move(submission));
  }

  void count_votes(Agreement& on) {
    std::exchange(on.vote, {}).wait();
    on.agreed = *on.votes > 0;
    if (on.agreed && &on == &stop) coordinator->stop_agreed();
  }

  /// Returns the result of the last call's vote, and votes where nothing is agreed yet.
  [[nodiscard]] bool agree(Agreement& on, bool wanted) {
    const std::lock_guard lock(on.mutex);
    if (on.vote.valid()) count_votes(on);
    if (on.agreed) return true;
    on.wanted = wanted;
    vote(on);
    return false;
  }

  /// Runs an operation of the context itself, without data, and returns its report. Blocks.
  std::int64_t run_control(Request request) {
    Submission submission;
    submission.request = std::move(request);
    std::int64_t result = 0;
    submission.report = [this, &result, is_join = submission.request.kind == OpKind::join](
                            std::span<const std::int64_t> values) {
      result = values.front();
      if (is_join) joined();
    };
    coordinator->submit_and_wait(std::move(submission));
    return result;
  }
};

Context::Context(std::unique_ptr<Session> session, std::vector<std::unique_ptr<Backend>> backends,
                 std::unique_ptr<ReadyFence> fence, std::shared_ptr<Arena> arena)
    : impl_(std::make_unique<Impl>()) {
  impl_->arena = std::move(arena);
  impl_->session = std::move(session);
  const Topology& topology = impl_->session->topology();
  std::unique_ptr<ControlChannel> channel;
  if (topology.size > 1) {
    channel = make_control_channel(impl_->session->loop(), impl_->session->network(), topology.rank,
                                   topology.size, impl_->session->config().control_fanout,
                                   impl_->session->start_deadline());
    // Heartbeats begin after this. Some ranks have their control streams earlier than others; if
    // they went on at once, they would give up a rank that still waits for a stream.
    impl_->session->bootstrap().barrier("connected");
  }
  impl_->coordinator = std::make_unique<detail::Coordinator>(*impl_->session, std::move(channel),
                                                             std::move(backends), std::move(fence));
  impl_->session->started();
}

Context::~Context() {
  if (std::uncaught_exceptions() > impl_->exceptions) {
    disconnect();
    return;
  }
  try {
    shutdown();
  } catch (const std::exception& error) {
    log(LogLevel::info, rank(), fmt::format("shutdown: {}", error.what()));
  }
}

const Topology& Context::topology() const noexcept { return impl_->session->topology(); }
const Config& Context::config() const noexcept { return impl_->session->config(); }
const std::shared_ptr<Arena>& Context::arena() const noexcept { return impl_->arena; }

Work Context::submit(Submission submission) {
  impl_->complete(submission);
  return impl_->coordinator->submit(std::move(submission));
}

void Context::run(Submission submission) {
  impl_->complete(submission);
  impl_->coordinator->submit_and_wait(std::move(submission));
}

std::vector<Work> Context::submit_group(std::vector<Submission> submissions, std::string group) {
  if (submissions.empty()) return {};
  const std::int32_t set = submissions.front().request.process_set;
  for (const Submission& submission : submissions) {
    if (submission.request.process_set != set) {
      refuse(submission.request, "its group is in another process set");
    }
    if (group.size() > kLongestGroup) {
      refuse(submission.request,
             fmt::format("the name of its group is longer than {} bytes", kLongestGroup));
    }
    impl_->check(submission);
  }
  const auto submit = [&](const std::string& name) {
    for (std::size_t i = 0; i < submissions.size(); ++i) {
      Request& request = submissions[i].request;
      if (request.name.empty()) request.name = fmt::format("{}/{}", name, i);
      request.group = name;
      request.group_size = static_cast<std::int32_t>(submissions.size());
    }
    return impl_->coordinator->submit_all(std::move(submissions));
  };
  // The table may still refuse the group, for the name of a member.
  return group.empty() ? impl_->with_next_name(set, "group", submit) : submit(group);
}

bool Context::stop_requested() {
  detail::watch_stop_signals();
  return impl_->agree(impl_->stop, detail::process_was_asked_to_stop());
}

bool Context::agree_on_change(bool wanted) { return impl_->agree(impl_->change, wanted); }
bool Context::agree_on_stop(bool wanted) { return impl_->agree(impl_->stop, wanted); }

int Context::join(bool average_over_contributors) {
  Request request;
  request.name = detail::kJoinName;
  request.kind = OpKind::join;
  request.over_contributors = average_over_contributors;
  const auto last = static_cast<int>(impl_->run_control(std::move(request)));
  const std::scoped_lock lock(impl_->stop.mutex, impl_->change.mutex);
  // Ranks that joined early do not know the results of the others' last votes. So all vote again.
  // In an elastic job a rank that was asked to stop may only want to leave.
  if (config().interrupt_fd < 0) {
    impl_->stop.wanted = impl_->stop.agreed || detail::process_was_asked_to_stop();
  }
  for (Impl::Agreement* const on : {&impl_->stop, &impl_->change}) {
    if (on->vote.valid()) impl_->count_votes(*on);
    impl_->vote(*on);
  }
  for (Impl::Agreement* const on : {&impl_->stop, &impl_->change}) impl_->count_votes(*on);
  return last;
}

ProcessSet Context::add_process_set(const std::vector<int>& ranks) {
  Request request;
  request.kind = OpKind::add_process_set;
  request.shape.assign(ranks.begin(), ranks.end());
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= size() ||
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    refuse(request,
           fmt::format("[{}] are not ascending ranks below {}", fmt::join(ranks, ", "), size()));
  }
  request.name = impl_->next_name(0, to_string(request.kind));
  return {static_cast<std::int32_t>(impl_->run_control(std::move(request))), ranks};
}

void Context::remove_process_set(const ProcessSet& set) {
  Request request;
  request.kind = OpKind::remove_process_set;
  request.shape = {set.id};
  if (set.id == 0) refuse(request, "the set of every rank stays");
  if (set.id < 0) refuse(request, "the set of a pair of ranks stays");
  if (!impl_->coordinator->process_sets().ranks(set.id)) {
    refuse(request, fmt::format("there is no process set {}", set.id));
  }
  request.name = impl_->next_name(0, to_string(request.kind));
  static_cast<void>(impl_->run_control(std::move(request)));
}

std::vector<int> Context::ranks_of(std::int32_t process_set) const {
  const auto ranks = impl_->coordinator->process_sets().ranks(process_set);
  if (!ranks) {
    throw Error(Errc::invalid_argument, fmt::format("there is no process set {}", process_set));
  }
  return *ranks;
}

Stats Context::stats() const { return impl_->coordinator->observer().stats(); }
void Context::mark_step() { impl_->coordinator->observer().mark_step(Clock::now()); }
void Context::step_done() { impl_->coordinator->observer().step_done(Clock::now()); }
void Context::start_timeline(const std::string& path) {
  impl_->coordinator->observer().timeline.start(path);
}
void Context::stop_timeline() noexcept { impl_->coordinator->observer().timeline.stop(); }
void Context::abort(const std::string& reason) noexcept { impl_->coordinator->abort(reason); }
void Context::shutdown() { impl_->coordinator->shutdown(); }
void Context::disconnect() noexcept { impl_->coordinator->disconnect(); }

}  // namespace hvd
