// Runs threads as fibers, one operation after another, in all orders that matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ucontext.h>

#include "explorer.hpp"
#include "machine.hpp"

namespace hvd::weak {

/// Forgets what `share` declared.
void forget_shared();

/// Explores depth first. Every execution runs from the start; it repeats the recorded choices up
/// to the last one that has another alternative. It ends early at a state that was there before.
class Scheduler {
 public:
  Scheduler(const Program& program, const Mutation& mutation, const Limits& limits);

  [[nodiscard]] Exploration run();

  /// Returns the scheduler if the caller is a thread of its program, else null.
  [[nodiscard]] static Scheduler* current() noexcept;

  [[nodiscard]] Machine& machine() noexcept { return machine_; }
  [[nodiscard]] std::size_t thread() const noexcept { return running_; }
  /// Lets other threads go on before an operation of this one. Stores need no such point: a store
  /// that is executed early only gives other threads more to choose from.
  void point();
  /// A load from a location that no other thread ever writes needs no point either.
  void load_point(std::uint64_t location);
  /// Records that this thread writes to a location.
  void writes(std::uint64_t location);
  /// Returns the order that an instruction has, with the mutation.
  [[nodiscard]] int order(const void* site, Site::Kind kind, int given);

  void lock(std::uint64_t mutex);
  /// Returns false when the word has another value.
  [[nodiscard]] bool futex_wait(Machine::Place word, std::uint64_t expected);
  void futex_wake(std::uint64_t word);
  void forget();
  void fail(const std::string& why);
  /// Records an operation, when a wrong execution is repeated.
  void note(const char* what, std::uint64_t location, std::uint64_t value, int order,
            const void* site) {
    if (repeats_) result_.events.push_back({running_, what, location, value, order, site});
  }

 private:
  struct Choice {
    std::size_t taken = 0;
    std::size_t of = 0;
  };
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    bool begun = false;
    bool ended = false;
    std::uint64_t progress = 0;
    std::uint64_t mutex = 0;  ///< that it waits for
    std::uint64_t futex = 0;
  };

  [[nodiscard]] std::size_t choose(std::size_t of);
  /// Records the state. Returns false if it was there before, with as many deviations left.
  [[nodiscard]] bool is_new();
  void execute();
  void repeat();
  [[nodiscard]] bool next();
  [[nodiscard]] std::vector<std::size_t> runnable() const;
  [[nodiscard]] std::uint64_t hash() const;
  void leave();
  static void enter();

  const Program& program_;
  const Mutation& mutation_;
  const Limits& limits_;
  const Machine::Choose choose_;
  Machine machine_;
  std::vector<Fiber> fibers_;
  ucontext_t home_{};
  std::size_t running_ = 0;
  std::size_t points_ = 0;
  std::vector<Choice> choices_;
  std::size_t made_ = 0;
  std::size_t deviations_ = 0;                              ///< among the choices made
  std::unordered_map<std::uint64_t, std::size_t> visited_;  ///< deviations that were left
  std::unordered_map<std::uint64_t, unsigned> writers_;     ///< bit masks, by location
  /// Those that the last execution has added.
  std::vector<std::pair<std::uint64_t, unsigned>> new_writers_;
  bool repeats_ = false;  ///< the wrong execution
  Exploration result_;
};

}  // namespace hvd::weak
