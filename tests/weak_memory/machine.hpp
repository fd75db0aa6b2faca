// Executes atomic operations as the C++ memory model allows: a view machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hvd::weak {

inline constexpr std::size_t kThreads = 6;
inline constexpr std::size_t kLocations = 64;

/// Mixes a number into a hash.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t with) noexcept {
  hash ^= with + 0x9E37'79B9'7F4A'7C15U + (hash << 6) + (hash >> 2);
  hash *= 0xFF51'AFD7'ED55'8CCDU;
  return hash ^ hash >> 33;
}

/// What a thread has observed: for each location the latest message, and for each thread how many
/// of its events happened before.
struct View {
  std::array<std::uint16_t, kLocations> seen{};
  std::array<std::uint16_t, kThreads> clock{};
};

/// The machine of RC11 (Lahav et al., PLDI 2017) in the operational form of Kang et al. (POPL 2017)
/// without promises: each location has all messages that were ever stored, in modification order; a
/// thread may read any message that is not older than the one it has observed. As in C++20, only
/// read-modify-writes continue a release sequence. An access that is seq_cst is ordered among all
/// seq_cst accesses and fences, in the order of execution.
class Machine {
 public:
  /// Returns a number below its argument, of which all are explored.
  using Choose = std::function<std::size_t(std::size_t)>;

  explicit Machine(const Choose& choose) : choose_(choose) {}

  void reset();

  /// `at` names a location; `initial` is its value where this is its first access.
  struct Place {
    std::uint64_t at = 0;
    std::uint64_t initial = 0;
  };
  std::uint64_t load(std::size_t thread, Place place, int order);
  void store(std::size_t thread, Place place, std::uint64_t value, int order);
  /// Stores what `next` returns for the old value, where it returns true, and returns the old
  /// value. Where it returns false it is a load with the order `otherwise`.
  using Next = std::function<bool(std::uint64_t old, std::uint64_t& next)>;
  std::uint64_t rmw(std::size_t thread, Place place, const Next& next, int order, int otherwise);
  void fence(std::size_t thread, int order);
  /// Returns the last value in modification order, as the kernel reads it.
  [[nodiscard]] std::uint64_t latest(Place place);

  void lock(std::size_t thread, std::uint64_t mutex);
  void unlock(std::size_t thread, std::uint64_t mutex);
  [[nodiscard]] bool locked(std::uint64_t mutex) const;

  /// Records an access to data that is not atomic. Returns whether it is a data race.
  [[nodiscard]] bool plain(std::size_t thread, std::uint64_t at, std::size_t size, bool writes);

  /// Begins the thread's history anew: what it does next depends on `progress` only.
  void forget(std::size_t thread, std::uint64_t progress) {
    threads_[thread].history = mix(thread, progress);
  }
  /// Tells whether an atomic access is a data race with an earlier one that is not atomic.
  [[nodiscard]] bool races(std::size_t thread, std::uint64_t at) const;
  /// Mixes something that a thread has observed into the hash of its history.
  void observe(std::size_t thread, std::uint64_t what) {
    threads_[thread].history = mix(threads_[thread].history, what);
  }
  /// Returns a hash of all that the future depends on.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  struct Message {
    std::uint64_t value = 0;
    std::uint64_t identity = 0;  ///< a hash that does not depend on the order of execution
    View view;                   ///< what an acquiring reader observes
    bool taken = false;          ///< a read-modify-write follows at once
  };
  struct Location {
    std::uint64_t at = 0;
    std::vector<Message> messages;     ///< as they were stored; the first is the initial value
    std::vector<std::uint16_t> order;  ///< the modification order
    std::vector<std::uint16_t> place;  ///< in it, by message
  };
  struct Thread {
    View now;
    View acquired;  ///< what an acquire fence adds
    View released;  ///< at the last release fence
    std::uint64_t history = 0;
    bool dirty = false;  ///< accessed data since its clock advanced
    std::array<std::uint16_t, kLocations> writes{};
    std::array<std::uint8_t, kLocations> stale{};  ///< how often the old message was read again
  };
  struct Cell {
    std::size_t writer = 0;
    std::uint16_t written = 0;  ///< in the writer's events; 0: never
    std::array<std::uint16_t, kThreads> read{};
  };
  struct Mutex {
    bool held = false;
    View view;
  };

  [[nodiscard]] std::size_t find(Place place);
  void join(View& into, const View& from, bool clocks = true) const;
  [[nodiscard]] std::size_t choose_message(Thread& thread, std::size_t location, bool sc);
  void read(Thread& thread, std::size_t location, std::size_t message, int order);
  void write(std::size_t thread, std::size_t location, std::size_t place, Message message,
             int order);
  /// Separates the thread's next accesses to data from those before.
  void tick(std::size_t thread) noexcept {
    if (!std::exchange(threads_[thread].dirty, false)) return;
    ++threads_[thread].now.clock[thread];
  }
  [[nodiscard]] std::uint64_t hash(const View& view) const;

  const Choose& choose_;
  std::array<Thread, kThreads> threads_;
  std::vector<Location> locations_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
  std::unordered_map<std::uint64_t, Cell> cells_;
  std::unordered_map<std::uint64_t, Mutex> mutexes_;
  View sc_;
};

}  // namespace hvd::weak
