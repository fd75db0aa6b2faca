// Is the runtime of code that is compiled with -fsanitize=thread: the compiler calls a function
// here for every access to memory and every atomic operation. Those of the explored threads to
// shared memory go to the machine, all others to the hardware. So the product's own sources are
// explored, unchanged. The names are those of the compilers' interface; Norris & Demsky
// (CDSChecker, OOPSLA 2013) and C11Tester (ASPLOS 2021) also explore compiled code.
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "scheduler.hpp"

namespace hvd::weak {
namespace {

struct Region {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  unsigned id = 0;
};
std::vector<Region> regions;

/// Returns the name of a shared address, which is 0 for private memory.
std::uint64_t name_of(const volatile void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Region& region : regions) {
    if (at - region.begin < region.size) return (region.id + 1ULL) << 40 | (at - region.begin);
  }
  return 0;
}

struct Shared {
  Scheduler* scheduler = nullptr;  ///< null: the hardware executes the operation
  Machine::Place place;
};

template <class T>
Shared shared(const volatile T* address) {
  Scheduler* const scheduler = Scheduler::current();
  if (scheduler == nullptr) return {};
  const std::uint64_t name = name_of(address);
  if (name == 0) return {};
  if (scheduler->machine().races(scheduler->thread(), name)) {
    scheduler->fail("data race of an atomic access");
  }
  return {scheduler, {name, static_cast<std::uint64_t>(*address)}};
}

template <class T>
T load(const volatile T* address, int order, const void* site) {
  const Shared of = shared(address);
  if (of.scheduler == nullptr) return __atomic_load_n(address, __ATOMIC_SEQ_CST);
  order = of.scheduler->order(site, Site::Kind::load, order);
  of.scheduler->load_point(of.place.at);
  const std::uint64_t value = of.scheduler->machine().load(of.scheduler->thread(), of.place, order);
  of.scheduler->note("reads", of.place.at, value, order, site);
  return static_cast<T>(value);
}

template <class T>
void store(volatile T* address, T value, int order, const void* site) {
  const Shared of = shared(address);
  if (of.scheduler == nullptr) return __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
  order = of.scheduler->order(site, Site::Kind::store, order);
  if (order == __ATOMIC_SEQ_CST) of.scheduler->point();
  of.scheduler->writes(of.place.at);
  of.scheduler->machine().store(of.scheduler->thread(), of.place, static_cast<std::uint64_t>(value),
                                order);
  of.scheduler->note("stores", of.place.at, static_cast<std::uint64_t>(value), order, site);
}

template <class T, class Change>
T change(const Shared& of, Change next, int order, const void* site) {
  order = of.scheduler->order(site, Site::Kind::rmw, order);
  of.scheduler->writes(of.place.at);
  of.scheduler->point();
  const auto changed = [&](std::uint64_t old, std::uint64_t& value) {
    value = static_cast<std::uint64_t>(next(static_cast<T>(old)));
    return true;
  };
  const std::uint64_t old = of.scheduler->machine().rmw(of.scheduler->thread(), of.place, changed,
                                                        order, __ATOMIC_RELAXED);
  of.scheduler->note("changes from", of.place.at, old, order, site);
  return static_cast<T>(old);
}

template <class T>
bool compare_exchange(volatile T* address, T* expected, T desired, int order, int otherwise,
                      const void* site) {
  const Shared of = shared(address);
  if (of.scheduler == nullptr) {
    return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
  }
  const T wanted = *expected;
  order = of.scheduler->order(site, Site::Kind::rmw, order);
  of.scheduler->writes(of.place.at);
  of.scheduler->point();
  const auto next = [&](std::uint64_t old, std::uint64_t& value) {
    value = static_cast<std::uint64_t>(desired);
    return static_cast<T>(old) == wanted;
  };
  *expected = static_cast<T>(
      of.scheduler->machine().rmw(of.scheduler->thread(), of.place, next, order, otherwise));
  return *expected == wanted;
}

void fence(int order, const void* site) {
  Scheduler* const scheduler = Scheduler::current();
  if (scheduler == nullptr) return __atomic_thread_fence(__ATOMIC_SEQ_CST);
  order = scheduler->order(site, Site::Kind::fence, order);
  if (order == __ATOMIC_SEQ_CST) scheduler->point();
  scheduler->machine().fence(scheduler->thread(), order);
  scheduler->note("fence", 0, 0, order, site);
}

void plain(const volatile void* address, std::size_t size, bool writes) {
  Scheduler* const scheduler = Scheduler::current();
  if (scheduler == nullptr || size == 0) return;
  const std::uint64_t name = name_of(address);
  if (name == 0) return;
  if (scheduler->machine().plain(scheduler->thread(), name, size, writes)) {
    scheduler->fail("data race");
  }
}

}  // namespace

void share(const void* begin, std::size_t size, unsigned id) {
  regions.push_back({reinterpret_cast<std::uintptr_t>(begin), size, id});
}

void forget() { Scheduler::current()->forget(); }

void forget_shared() { regions.clear(); }

void fail(const std::string& why) {
  Scheduler::current()->fail(why);
  __builtin_unreachable();
}

}  // namespace hvd::weak

using namespace hvd::weak;  // NOLINT: the functions below have names of their own

#define SITE __builtin_return_address(0)

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** address, void*) { plain(address, sizeof *address, true); }
void __tsan_vptr_read(void** address) { plain(address, sizeof *address, false); }
void __tsan_read_range(void* address, std::size_t size) { plain(address, size, false); }
void __tsan_write_range(void* address, std::size_t size) { plain(address, size, true); }
void* __tsan_memcpy(void* to, const void* from, std::size_t size) {
  plain(from, size, false);
  plain(to, size, true);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, std::size_t size) {
  plain(from, size, false);
  plain(to, size, true);
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, std::size_t size) {
  plain(to, size, true);
  return std::memset(to, value, size);
}

#define HVD_PLAIN(size)                                                            \
  void __tsan_read##size(void* address) { plain(address, size, false); }           \
  void __tsan_write##size(void* address) { plain(address, size, true); }           \
  void __tsan_unaligned_read##size(void* address) { plain(address, size, false); } \
  void __tsan_unaligned_write##size(void* address) { plain(address, size, true); }
HVD_PLAIN(1)
HVD_PLAIN(2)
HVD_PLAIN(4)
HVD_PLAIN(8)
HVD_PLAIN(16)

#define HVD_CHANGE(bits, name, expression)                                                      \
  T##bits __tsan_atomic##bits##_##name(volatile T##bits* address, T##bits operand, int order) { \
    const Shared of = shared(address);                                                          \
    if (of.scheduler == nullptr) return __atomic_##name(address, operand, __ATOMIC_SEQ_CST);    \
    return change<T##bits>(                                                                     \
        of, [&](T##bits old) { return static_cast<T##bits>(expression); }, order, SITE);        \
  }
#define HVD_ATOMIC(bits)                                                                           \
  using T##bits = std::uint##bits##_t;                                                             \
  T##bits __tsan_atomic##bits##_load(const volatile T##bits* address, int order) {                 \
    return load(address, order, SITE);                                                             \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T##bits* address, T##bits value, int order) {          \
    store(address, value, order, SITE);                                                            \
  }                                                                                                \
  HVD_CHANGE(bits, fetch_add, old + operand)                                                       \
  HVD_CHANGE(bits, fetch_sub, old - operand)                                                       \
  HVD_CHANGE(bits, fetch_or, old | operand)                                                        \
  HVD_CHANGE(bits, fetch_and, old& operand)                                                        \
  T##bits __tsan_atomic##bits##_exchange(volatile T##bits* address, T##bits operand, int order) {  \
    const Shared of = shared(address);                                                             \
    if (of.scheduler == nullptr) return __atomic_exchange_n(address, operand, __ATOMIC_SEQ_CST);   \
    return change<T##bits>(                                                                        \
        of, [&](T##bits) { return operand; }, order, SITE);                                        \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T##bits* address, T##bits* expected, \
                                                     T##bits desired, int order, int otherwise) {  \
    return compare_exchange(address, expected, desired, order, otherwise, SITE);                   \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T##bits* address, T##bits* expected,   \
                                                   T##bits desired, int order, int otherwise) {    \
    return compare_exchange(address, expected, desired, order, otherwise, SITE);                   \
  }
#define HVD_EXCHANGE_VALUE(bits)                                                                  \
  T##bits __tsan_atomic##bits##_compare_exchange_val(volatile T##bits* address, T##bits expected, \
                                                     T##bits desired, int order, int otherwise) { \
    compare_exchange(address, &expected, desired, order, otherwise, SITE);                        \
    return expected;                                                                              \
  }
HVD_ATOMIC(8)
HVD_ATOMIC(16)
HVD_ATOMIC(32)
HVD_ATOMIC(64)
HVD_EXCHANGE_VALUE(8)
HVD_EXCHANGE_VALUE(16)
HVD_EXCHANGE_VALUE(32)
HVD_EXCHANGE_VALUE(64)

void __tsan_atomic_thread_fence(int order) { fence(order, SITE); }
void __tsan_atomic_signal_fence(int) {}

// The linker sends these calls here (--wrap).
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  Scheduler* const scheduler = Scheduler::current();
  const std::uint64_t name = scheduler == nullptr ? 0 : name_of(mutex);
  if (name == 0) return __real_pthread_mutex_lock(mutex);
  scheduler->lock(name);
  return 0;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  Scheduler* const scheduler = Scheduler::current();
  const std::uint64_t name = scheduler == nullptr ? 0 : name_of(mutex);
  if (name == 0) return __real_pthread_mutex_unlock(mutex);
  scheduler->machine().unlock(scheduler->thread(), name);
  return 0;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  Scheduler* const scheduler = Scheduler::current();
  auto* const word = reinterpret_cast<volatile std::uint32_t*>(a);
  const std::uint64_t name = scheduler == nullptr || number != SYS_futex ? 0 : name_of(word);
  if (name == 0) return __real_syscall(number, a, b, c, d, e, f);
  if ((static_cast<int>(b) & FUTEX_CMD_MASK) == FUTEX_WAKE) {
    scheduler->futex_wake(name);
  } else if (!scheduler->futex_wait({name, *word}, static_cast<std::uint32_t>(c))) {
    errno = EAGAIN;
    return -1;
  }
  return 0;
}
}
