// What one rank tells all others about where it is, in memory that only it writes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "arrivals/withdrawals.hpp"

namespace hvd {

/// Two cache lines, which are fetched as a pair. Zeroed memory is a rank that has come to nothing.
struct alignas(128) ArrivalLine {
  struct Recent {
    std::atomic<std::uint64_t> ticket{0};
    std::atomic<std::uint64_t> digest{0};
  };
  /// Tickets that this rank passes without coming to them.
  struct Gap {
    std::atomic<std::uint64_t> after{0};
    std::atomic<std::uint64_t> until{0};  ///< inclusive; 0: no gap
  };

  std::atomic<std::uint64_t> arrived{0};  ///< the last ticket it came to
  std::atomic<std::uint32_t> awaited{0};  ///< while it sleeps: the rank that must wake it, plus one
  std::array<Recent, 2> recent;           ///< the last two tickets it came to

  alignas(64) std::atomic<std::uint64_t> gap_version{0};  ///< odd while the gaps change
  std::array<Gap, 3> gaps;
};
static_assert(sizeof(ArrivalLine) == 128);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The owner's side. Trusts nothing that it reads back.
class LineWriter {
 public:
  explicit LineWriter(ArrivalLine& line) noexcept : line_(line) {}

  /// One thread at a time.
  void come(std::uint64_t ticket, std::uint64_t digest) noexcept;
  /// Any thread. Before this rank comes to a ticket after `until`.
  void skip(std::uint64_t after, std::uint64_t until) noexcept;
  /// The last ticket come to. Any thread.
  [[nodiscard]] std::uint64_t arrived() const noexcept {
    return arrived_.load(std::memory_order_acquire);
  }
  /// Asks `rank` to wake this one; -1: nobody.
  void await(int rank) noexcept {
    line_.awaited.store(static_cast<std::uint32_t>(rank + 1), std::memory_order_seq_cst);
  }

 private:
  ArrivalLine& line_;
  std::atomic<std::uint64_t> arrived_{0};
  std::size_t next_recent_ = 0;
  std::mutex mutex_;  ///< for the gaps
  std::size_t newest_gap_ = 0;
  std::uint64_t after_ = 0;
  std::uint64_t until_ = 0;
  std::uint64_t version_ = 0;
};

enum class Presence {
  pending,  ///< has not come, or passed without coming, or that cannot be told yet
  came,
  differs,  ///< came with another digest
};

/// What the line of another rank says about a ticket of which this rank was told `fate`, and when
/// it was given up with all tickets until `given_up`. Whatever is in the line, reading it is
/// harmless.
[[nodiscard]] Presence presence(const ArrivalLine& line, std::uint64_t ticket, std::uint64_t digest,
                                Fate fate, std::uint64_t given_up) noexcept;

}  // namespace hvd
