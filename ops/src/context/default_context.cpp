// Implements the default context, for programs that need only one.
#include <cstdlib>
#include <utility>

#include <hvd/hvd.hpp>

#include "context/make_context.hpp"
#include "context/thread_context.hpp"

namespace hvd {
namespace {

struct DefaultContext {
  std::unique_ptr<Context> context;
  std::uint32_t generation = 0;

  ~DefaultContext() { leave(); }

  /// A program that ends without `shutdown()` leaves at once rather than wait for the others.
  void leave() noexcept {
    const std::unique_ptr<Context> left = std::move(context);
    if (left) left->disconnect();
  }
};

DefaultContext& default_context() {
  static DefaultContext instance;
  return instance;
}

void leave_at_exit() { default_context().leave(); }

thread_local Context* context_of_this_thread = nullptr;

}  // namespace

detail::ThreadContext::ThreadContext(Context& context) noexcept {
  context_of_this_thread = &context;
}

detail::ThreadContext::~ThreadContext() { context_of_this_thread = nullptr; }

void detail::init_default_context(
    const Config& config, const std::function<std::unique_ptr<Context>(const Config&)>& make) {
  if (is_initialized()) return;
  DefaultContext& instance = default_context();
  Config settings = config;
  settings.generation += instance.generation++;
  instance.context = make(settings);
  // Exit handlers run in reverse order. This one is registered after each `make`, so that it runs
  // before the handlers of libraries that `make` was the first to use: after CUDA's, for instance,
  // a context cannot be destroyed any more.
  static_cast<void>(std::atexit(leave_at_exit));
}

void init(const Config& config) {
  detail::init_default_context(config,
                               [](const Config& settings) { return make_context(settings); });
}

void shutdown() {
  if (context_of_this_thread) return context_of_this_thread->shutdown();
  // The default context ends before the wait, so that it has ended also when that throws.
  const std::unique_ptr<Context> context = std::move(default_context().context);
  if (context) context->shutdown();
}

bool is_initialized() noexcept {
  return context_of_this_thread != nullptr || default_context().context != nullptr;
}

Context& context() {
  if (context_of_this_thread) return *context_of_this_thread;
  DefaultContext& instance = default_context();
  if (!instance.context) {
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
bool stop_requested() { return context().stop_requested(); }
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
