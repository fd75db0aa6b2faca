#include <atomic>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/internal/elastic_worker.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/timeline.hpp>
#include <hvd/elastic.hpp>
#include <hvd/ops/internal/context_follower.hpp>

#include "context/default_context.hpp"
#include "context/thread_context.hpp"

namespace hvd {
namespace {

using detail::ElasticWorker;

std::atomic<std::uint32_t> current_generation{0};

/// Passes through the user's function when all ranks have agreed to end the generation. It is no
/// std::exception, so that handlers of errors do not catch it.
struct GenerationEnds {};

/// Tells whether this rank, `rank`, may go on in another generation after such an error. If another
/// rank lacks a resource, only that rank ends. If no rank is named (a file), all ranks end.
bool ends_generation(const Error& error, int rank) noexcept {
  const Errc code = error.code();
  const int culprit = error.fault().rank;
  return code == Errc::peer_lost || code == Errc::aborted || code == Errc::timeout ||
         code == Errc::shut_down || (code == Errc::resource && culprit >= 0 && culprit != rank);
}

/// Holds the default context of one generation.
class Generation {
 public:
  Generation(ElasticStateBase& state, Config config) : state_(state) {
    if (!config.timeline.empty()) {
      config.timeline = timeline_of_generation(config.timeline, config.epoch);
    }
    if (config.backend == "mpi") {
      throw Error(Errc::unsupported, "HVD_BACKEND=mpi: in an elastic job MPI cannot lose ranks");
    }
    detail::set_default_context(make_context(config));
    current_generation = config.epoch;
    log(LogLevel::info, rank(), fmt::format("generation {} has {} ranks", config.epoch, size()));
  }
  /// Without an earlier shutdown, the other ranks see this rank as lost.
  ~Generation() {
    state_.generation_ended();
    // This makes the operations that followers have submitted fail, so that `detach`, which waits
    // for them, does not wait for other ranks.
    if (is_initialized()) context().disconnect();
    detail::detach_followers();
    current_generation = 0;
    detail::take_default_context().reset();
  }
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

 private:
  ElasticStateBase& state_;
};

class ElasticRun {
 public:
  ElasticRun(ElasticStateBase& state, const std::function<void()>& run) : state_(state), run_(run) {
    if (is_running_.exchange(true)) {
      throw Error(Errc::invalid_argument, "hvd::elastic_run is running already");
    }
  }
  ~ElasticRun() { is_running_ = false; }
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  bool run(ElasticWorker& worker) {
    std::optional<Error> reason;
    while (const auto config = worker.next_generation(reason ? &*reason : nullptr)) {
      reason.reset();
      try {
        const Generation generation(state_, *config);
        const bool finished = train(worker);
        // This waits for ranks that come to the same end later. The function may have done it.
        if (is_initialized()) context().shutdown();
        if (finished) return true;
      } catch (const Error& error) {
        if (!ends_generation(error, config->rank)) throw;
        log(LogLevel::info, config->rank,
            fmt::format("generation {} has ended: {}", config->epoch, error.what()));
        reason = error;
      }
    }
    return false;
  }

 private:
  /// Returns false when all ranks have agreed to end the generation.
  bool train(ElasticWorker& worker) {
    detail::attach_followers(context());
    if (!std::exchange(is_first_, false)) state_.reset();
    state_.synchronize(context());
    worker.has_state();
    try {
      run_();
      return true;
    } catch (const GenerationEnds&) {
      state_.change_agreed();
      return false;
    }
  }

  static inline std::atomic<bool> is_running_{false};

  ElasticStateBase& state_;
  const std::function<void()>& run_;
  bool is_first_ = true;
};

}  // namespace

void ElasticStateBase::on_reset(std::function<void()> callback) {
  if (!callback) throw Error(Errc::invalid_argument, "on_reset: the function is empty");
  callbacks_.push_back(std::move(callback));
}

void ElasticStateBase::call_reset_callbacks() const {
  for (const auto& callback : callbacks_) callback();
}

bool elastic_run(ElasticStateBase& state, const std::function<void()>& run) {
  if (!run) throw Error(Errc::invalid_argument, "hvd::elastic_run: the function is empty");
  ElasticWorker* const worker = ElasticWorker::of_process();
  const bool has_own_context = detail::ThreadContext::exists();
  if (worker != nullptr) {
    if (has_own_context) {
      throw Error(Errc::invalid_argument, "hvd::elastic_run in the body of hvd::threads");
    }
    return ElasticRun(state, run).run(*worker);
  }
  init();
  // Followers use the default context of the process only.
  if (!has_own_context) detail::attach_followers(context());
  state.synchronize(context());
  run();
  return true;
}

bool elastic::active() { return ElasticWorker::of_process() != nullptr; }

std::uint32_t elastic::generation() noexcept { return current_generation; }

void elastic::check_host_updates() {
  ElasticWorker* const worker = ElasticWorker::of_process();
  if (worker == nullptr) return;
  Context& all = context();
  if (detail::ThreadContext::exists()) return;
  if (all.agree_on_change(worker->wish().change)) throw GenerationEnds{};
}

bool elastic::job_stops() {
  ElasticWorker* const worker = ElasticWorker::of_process();
  if (worker == nullptr) return false;
  Context& all = context();
  if (detail::ThreadContext::exists()) return false;
  const ElasticWorker::Wish wish = worker->wish();
  // All ranks vote for both.
  const bool changes = all.agree_on_change(wish.change && !wish.stop);
  if (all.agree_on_stop(wish.stop)) return true;
  if (changes) throw GenerationEnds{};
  return false;
}

}  // namespace hvd
