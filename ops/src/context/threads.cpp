#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include <hvd/core/internal/hash_store.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/threads.hpp>

#include "context/thread_context.hpp"

namespace hvd {
namespace {

// It is initialised before any code runs, since it is set during static initialisation.
constinit std::atomic<detail::PrepareRanks> prepare_ranks{nullptr};

/// Returns whether the error says only that another rank has failed or does not answer.
bool may_be_of_victim(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.code() == Errc::peer_lost || known.code() == Errc::timeout ||
           known.code() == Errc::aborted;
  } catch (...) {
    return false;
  }
}

/// Keeps the first error of a job. Later ones are its consequences.
class FirstError {
 public:
  void keep(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  /// Keeps the error of a rank that did not start. Ranks that have started may have noticed it
  /// before it is known here, because a rank closes its connections before it throws.
  void keep_of_start(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_ || (may_be_of_victim(error_) && !may_be_of_victim(error))) {
      error_ = std::move(error);
    }
  }
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

/// With shared memory n ranks hold n² mappings and descriptors, and a process may have 65,530
/// mappings (vm.max_map_count).
constexpr int kMostThreadsSharing = 128;

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
  if (config.transport == "auto" && size > kMostThreadsSharing) config.transport = "tcp";
  return config;
}

/// Throws Errc::resource if the ranks cannot have as many descriptors as they need. Otherwise
/// a rank might run out of them while another waits for its connection, until HVD_START_TIMEOUT.
void require_descriptors(std::uint64_t ranks, const Config& config) {
  std::error_code unknown;  // then none is counted
  const std::filesystem::directory_iterator open("/proc/self/fd", unknown);
  const auto others = static_cast<std::uint64_t>(std::distance(begin(open), end(open)));
  const std::uint64_t needed = 10 * ranks + (config.transport == "tcp" ? 0 : ranks * ranks);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= others + needed) return;
  throw Error(Errc::resource,
              fmt::format("hvd::threads: {} ranks need {} descriptors, {} are open already, and "
                          "this process may have {} (ulimit -n)",
                          ranks, needed, others, limit.rlim_cur));
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
  require_descriptors(static_cast<std::uint64_t>(size), settings);
  const auto store = std::make_shared<detail::HashStore>();
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
    } catch (...) {  // it did not start
      first.keep_of_start(std::current_exception());
      store->fail(std::current_exception());
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
