// What every ready fence keeps of what it is told by `settle`, and what it checks of its arguments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace hvd {

/// What is known of an operation with a sequence number.
enum class FenceOutcome {
  open,      ///< nothing is known yet
  runs,      ///< every member has come to it, or will
  cancelled  ///< some member never comes to it
};

/// Any thread.
class Settlements {
 public:
  /// By rank: the last sequence number that it has come to, or will.
  void settle(std::span<const std::uint64_t> reached);

  /// Whether anything was settled up to `sequence`. Cheap: one load.
  [[nodiscard]] bool mention(std::uint64_t sequence) const noexcept {
    return sequence <= mentioned_.load(std::memory_order_acquire);
  }
  /// Of an operation with these members. One thread at a time, with growing numbers: what concerns
  /// earlier ones is forgotten.
  [[nodiscard]] FenceOutcome of(std::uint64_t sequence, std::span<const int> members);

 private:
  struct Settlement {
    std::uint64_t last = 0;
    std::vector<std::uint64_t> reached;
  };

  void forget_before(std::uint64_t sequence);

  /// Beyond it nothing was settled: the common case takes no lock.
  std::atomic<std::uint64_t> mentioned_{0};
  std::atomic<std::uint64_t> asked_{0};  ///< the last number asked about
  std::mutex mutex_;
  std::uint64_t settled_ = 0;
  std::vector<Settlement> settlements_;  ///< in the order of their numbers
};

/// Where `rank` stands among `members`. Throws Errc::invalid_argument unless they are ascending
/// ranks of a job of `size` and `rank` is among them.
[[nodiscard]] std::size_t position_in(std::span<const int> members, int rank, int size);
/// Throws Errc::invalid_argument unless `sequence` comes after `last`, and after 0.
void check_order(std::uint64_t last, std::uint64_t sequence);

}  // namespace hvd
