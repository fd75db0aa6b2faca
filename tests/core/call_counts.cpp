#include "call_counts.hpp"

#include <atomic>
#include <ctime>

#include <dlfcn.h>
#include <pthread.h>

namespace {

thread_local hvd::test::CallCounts counts;

/// Finds the C library's function, which this program's function of the same name hides.
template <class Function>
Function* real(std::atomic<Function*>& found, const char* name) noexcept {
  Function* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

std::atomic<int (*)(pthread_mutex_t*)> real_lock{nullptr};
std::atomic<int (*)(clockid_t, timespec*)> real_clock{nullptr};

}  // namespace

// Replaces the function in the whole program and in its libraries.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  ++counts.locks;
  return real(real_lock, "pthread_mutex_lock")(mutex);
}

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  ++counts.clocks;
  return real(real_clock, "clock_gettime")(clock, time);
}

namespace hvd::test {

std::optional<CallCounts> call_counts() noexcept { return counts; }

}  // namespace hvd::test
