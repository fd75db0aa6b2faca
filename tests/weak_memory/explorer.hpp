// Explores all executions of a few threads that the C++ memory model allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

struct Exploration {
  std::uint64_t executions = 0;
  std::uint64_t states = 0;
  std::string failure;  ///< of the first execution that is wrong; empty: none is
  Sites sites;          ///< all that were executed
};

/// Explores the program up to its first failure: a call of `fail`, an exception, a data race, or
/// threads that wait for ever.
[[nodiscard]] Exploration explore(const Program& program, const Mutation& mutation = {});

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
