// Explores all executions of a few threads that the C++ memory model allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace hvd::weak {

/// The threads of a small program. Everything that they share lies in memory for which `set_up`
/// has called `share`.
struct Program {
  std::string name;
  std::function<void()> set_up;  ///< runs before each execution
  std::vector<std::function<void()>> threads;
  std::function<void()> at_end;  ///< runs after each execution in which every thread has ended
};

/// Names an instruction with a memory order by its address in this program's code.
struct Site {
  enum class Kind { load, store, rmw, fence };
  Kind kind = Kind::load;
  int order = 0;  ///< as in __ATOMIC_RELAXED
};
using Sites = std::map<const void*, Site>;

struct Mutation {
  std::set<const void*> sites;
  int order = 0;  ///< what these sites have instead
};

/// Bounds an exploration. An execution deviates each time when a load does not read the newest
/// message, a store does not come last in modification order, a thread is interrupted, or another
/// thread than the next one follows one that waits (Emmi, Qadeer & Rakamaric, POPL 2011). Without
/// limits the exploration is exhaustive.
struct Limits {
  std::size_t deviations = std::numeric_limits<std::size_t>::max();  ///< of one execution
  std::uint64_t executions = std::numeric_limits<std::uint64_t>::max();
};

/// An operation of a wrong execution.
struct Event {
  std::size_t thread = 0;
  std::string what;
  std::uint64_t location = 0;
  std::uint64_t value = 0;
  int order = 0;
  const void* site = nullptr;
};

struct Exploration {
  std::uint64_t executions = 0;  ///< also those that ended at a state that was there before
  std::uint64_t states = 0;
  bool complete = false;      ///< every execution with at most so many deviations was explored
  std::string failure;        ///< of the first execution that is wrong; empty: none is
  std::vector<Event> events;  ///< of that execution
  Sites sites;                ///< all that were executed
};

/// Explores the program up to its first failure: a call of `fail`, an exception, a data race, or
/// threads that wait for ever.
[[nodiscard]] Exploration explore(const Program& program, const Mutation& mutation = {},
                                  const Limits& limits = {});

/// Declares memory that the threads share. The same memory at several addresses has one `id`.
void share(const void* begin, std::size_t size, unsigned id);
/// Says that what this thread does next depends only on how often it has called this, and not on
/// how it waited before. Then executions that differ only in that are explored once from here on.
void forget();
/// Ends the execution as wrong.
[[noreturn]] void fail(const std::string& why);
inline void check(bool good, const char* why) {
  if (!good) fail(why);
}

}  // namespace hvd::weak
