// Holds the parts that all ready fences share: a record of the calls of `settle`, and checks of
// arguments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace hvd::detail {

/// Tells what `settle` has said about an operation.
enum class FenceOutcome {
  open,      ///< nothing is known yet
  runs,      ///< every member has reached it, or will reach it
  cancelled  ///< some member never reaches it
};

/// Records what `ReadyFence::settle` reported. Any thread may call it.
class Settlements {
 public:
  /// `reached` has for each rank the last sequence number that it has reached, or will reach.
  void settle(std::span<const std::uint64_t> reached);

  /// Tells whether a settlement covers `sequence`. It costs one atomic load, which orders nothing:
  /// `of` takes the lock.
  [[nodiscard]] bool mention(std::uint64_t sequence) const noexcept {
    return sequence <= mentioned_.load(std::memory_order_relaxed);
  }
  /// Returns what is known of the operation `sequence` with these members. One thread at a time
  /// asks, with growing numbers: settlements that cover earlier ones only are forgotten.
  [[nodiscard]] FenceOutcome of(std::uint64_t sequence, std::span<const int> members);

 private:
  struct Settlement {
    std::uint64_t last = 0;
    std::vector<std::uint64_t> reached;
  };

  void forget_before(std::uint64_t sequence);

  /// The highest number that is settled. A fence is usually beyond it, and then takes no lock.
  std::atomic<std::uint64_t> mentioned_{0};
  std::atomic<std::uint64_t> asked_{0};  ///< the last number asked about
  std::mutex mutex_;
  std::uint64_t settled_ = 0;
  std::vector<Settlement> settlements_;  ///< in the order of their numbers
};

/// Returns the index of `rank` in `members`. Throws Errc::invalid_argument unless they are
/// ascending ranks of a job of `size` and `rank` is among them.
[[nodiscard]] std::size_t position_in(std::span<const int> members, int rank, int size);
/// Throws Errc::invalid_argument unless `sequence` comes after `last`, and after 0.
void check_order(std::uint64_t last, std::uint64_t sequence);

}  // namespace hvd::detail
