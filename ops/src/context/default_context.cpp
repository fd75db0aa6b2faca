// Implements the default context, for programs that need only one.
#include "context/default_context.hpp"

#include <cstdlib>
#include <utility>

#include <unistd.h>

#include <hvd/core/internal/elastic_worker.hpp>
#include <hvd/elastic.hpp>
#include <hvd/ops/internal/context_follower.hpp>

#include "context/make_context.hpp"
#include "context/thread_context.hpp"

namespace hvd {
namespace {

struct DefaultContext {
  std::unique_ptr<Context> context;
  std::shared_ptr<const void> life;  ///< see `life_of_default_context`
  pid_t process = -1;                ///< the one that has made the context

  ~DefaultContext() { leave(); }

  /// A program that ends without `shutdown()` leaves at once rather than wait for the others.
  void leave() noexcept {
    const std::unique_ptr<Context> left = take();
    if (left) left->disconnect();
  }
  std::unique_ptr<Context> take() noexcept {
    life.reset();
    // A forked child has the memory of the context, but not the threads that would end it.
    if (::getpid() != process) static_cast<void>(context.release());
    return std::move(context);
  }
};

DefaultContext& default_context() {
  static DefaultContext instance;
  return instance;
}

void leave_at_exit() { default_context().leave(); }

thread_local Context* context_of_this_thread = nullptr;
thread_local std::shared_ptr<const void> life_of_this_thread;

}  // namespace

detail::ThreadContext::ThreadContext(Context& context) {
  life_of_this_thread = std::make_shared<char>();
  context_of_this_thread = &context;
}

detail::ThreadContext::~ThreadContext() {
  context_of_this_thread = nullptr;
  life_of_this_thread.reset();
}

bool detail::ThreadContext::exists() noexcept { return context_of_this_thread != nullptr; }

void detail::set_default_context(std::unique_ptr<Context> context) {
  default_context().life = std::make_shared<char>();
  default_context().context = std::move(context);
  default_context().process = ::getpid();
  // Exit handlers run in reverse order. This one is registered after each context is made, so that
  // it runs before the handlers of libraries that the context was the first to use: after CUDA's,
  // for instance, a context cannot be destroyed any more.
  static_cast<void>(std::atexit(leave_at_exit));
}

std::unique_ptr<Context> detail::take_default_context() noexcept {
  return default_context().take();
}

std::weak_ptr<const void> detail::life_of_default_context() noexcept {
  return context_of_this_thread ? life_of_this_thread : default_context().life;
}

void detail::init_default_context(
    const Config& config, const std::function<std::unique_ptr<Context>(const Config&)>& make) {
  // In an elastic job the context is that of a generation, which `elastic_run` makes.
  if (is_initialized() || ElasticWorker::of_process() != nullptr) return;
  set_default_context(make(config));
}

void init(const Config& config) {
  detail::init_default_context(config,
                               [](const Config& settings) { return make_context(settings); });
}

void shutdown() {
  if (context_of_this_thread) return context_of_this_thread->shutdown();
  // The default context ends before the wait, so that it has ended also when that throws.
  const std::unique_ptr<Context> context = detail::take_default_context();
  if (context) context->shutdown();
}

bool is_initialized() noexcept {
  return context_of_this_thread != nullptr || default_context().context != nullptr;
}

Context& context() {
  if (context_of_this_thread) return *context_of_this_thread;
  DefaultContext& instance = default_context();
  if (!instance.context) {
    if (detail::ElasticWorker::of_process() != nullptr) {
      throw Error(
          Errc::not_initialized,
          "in an elastic job there are ranks only while hvd::elastic_run runs its function: put "
          "the training loop into one, with an hvd::ElasticState, or start the program without "
          "--min-np, --max-np and --host-discovery-script of hvdrun (docs/how-to/elastic.md)");
    }
    throw Error(Errc::not_initialized,
                "hvd::init() has not been called, or hvd::shutdown() has; a thread that a body of "
                "hvd::threads starts has to name the context of the body");
  }
  return *instance.context;
}

int rank() { return context().rank(); }
int size() { return context().size(); }
int local_rank() { return context().topology().local_rank; }
int local_size() { return context().topology().local_size; }
int cross_rank() { return context().topology().cross_rank; }
int cross_size() { return context().topology().cross_size; }
Stats stats() { return context().stats(); }
bool stop_requested() {
  return elastic::active() ? elastic::job_stops() : context().stop_requested();
}
void step_done() { context().step_done(); }
ProcessSet add_process_set(const std::vector<int>& ranks) {
  return context().add_process_set(ranks);
}
void remove_process_set(const ProcessSet& set) { context().remove_process_set(set); }
void start_timeline(const std::string& name) {
  context().start_timeline(timeline_path(name, rank()));
}
void stop_timeline() { context().stop_timeline(); }

}  // namespace hvd
