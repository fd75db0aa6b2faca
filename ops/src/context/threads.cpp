#include <atomic>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/ops/threads.hpp>

#include "context/thread_context.hpp"

namespace hvd {
namespace {

// It is initialised before any code runs, since it is set during static initialisation.
constinit std::atomic<detail::PrepareRanks> prepare_ranks{nullptr};

/// Keeps the first error of a job. Later ones are its consequences.
class FirstError {
 public:
  void keep(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

/// Returns the settings of `config` for a separate job. If the process is itself a rank of a job,
/// what belongs to that rank is left out.
Config settings_of(Config config, int size) {
  config.size = size;
  config.local_rank = config.local_size = config.cross_rank = config.cross_size = -1;
  config.ranks.clear();
  config.secret_fd = config.status_fd = config.interrupt_fd = -1;
  config.secret_file.clear();
  config.error_file.clear();
  if (config.backend == "mpi") config.backend = "auto";  // MPI's ranks are processes
  return config;
}

std::string text_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void run_rank(const Config& config, const std::shared_ptr<Store>& store,
              const std::function<void(Context&)>& body, FirstError& first) {
  const auto context = make_context(config, store);
  const detail::ThreadContext scope(*context);
  try {
    body(*context);
    context->shutdown();
  } catch (...) {
    first.keep(std::current_exception());  // before the other ranks hear of it and throw too
    context->abort(text_of_current_exception());
  }
}

}  // namespace

bool detail::provide_rank_preparation(PrepareRanks prepare) noexcept {
  prepare_ranks.store(prepare);
  return true;
}

void threads(int size, const std::function<void(Context&)>& body, const Config& config) {
  if (size < 1) throw Error(Errc::invalid_argument, fmt::format("hvd::threads: {} ranks", size));
  if (!body) throw Error(Errc::invalid_argument, "hvd::threads: the body is empty");
  const detail::PrepareRanks prepare = prepare_ranks.load();
  const std::function<void()> prepare_thread = prepare ? prepare(size) : [] {};
  const Config settings = settings_of(config, size);
  const std::shared_ptr<Store> store = make_hash_store();
  FirstError first;
  // No rank begins before all have a thread, because it would wait for those that never come.
  std::latch begin(1);
  const auto run = [&](int rank) noexcept {
    begin.wait();
    try {
      first.rethrow();
      prepare_thread();
      Config own = settings;
      own.rank = rank;
      run_rank(own, store, body, first);
    } catch (...) {
      first.keep(std::current_exception());
    }
  };
  std::vector<std::thread> ranks;
  try {
    for (int rank = 0; rank < size; ++rank) ranks.emplace_back(run, rank);
  } catch (const std::exception& error) {
    first.keep(std::make_exception_ptr(
        Error(Errc::resource, fmt::format("hvd::threads: no thread for rank {} of {}: {}",
                                          ranks.size(), size, error.what()))));
  }
  begin.count_down();
  for (std::thread& rank : ranks) rank.join();
  first.rethrow();
}

}  // namespace hvd
