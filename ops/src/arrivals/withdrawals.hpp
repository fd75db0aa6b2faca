// What this rank was told about tickets that not everybody comes to.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace hvd {

enum class Fate {
  open,      ///< nothing is known
  certain,   ///< every member comes, or has come
  given_up,  ///< over, unless every member has come
  dead,      ///< some member never comes
};

/// Any thread.
class Withdrawals {
 public:
  void withdraw(std::uint64_t last) noexcept;
  /// By rank: the last ticket it came or comes to.
  void settle(std::span<const std::uint64_t> reached);

  /// Of a ticket with these members. One thread at a time, with growing tickets: what concerns
  /// earlier ones is forgotten.
  [[nodiscard]] Fate of(std::uint64_t ticket, std::span<const int> members);
  /// All that `given_up` may refer to.
  [[nodiscard]] std::uint64_t withdrawn() const noexcept {
    return withdrawn_.load(std::memory_order_acquire);
  }

 private:
  struct Settlement {
    std::uint64_t last = 0;
    std::vector<std::uint64_t> reached;
  };

  void forget_before(std::uint64_t ticket);

  /// Beyond it nothing was said: the common case takes no lock.
  std::atomic<std::uint64_t> mentioned_{0};
  std::atomic<std::uint64_t> withdrawn_{0};
  std::atomic<std::uint64_t> asked_{0};  ///< the last ticket asked about
  std::mutex mutex_;
  std::uint64_t settled_ = 0;
  std::vector<Settlement> settlements_;  ///< in the order of their tickets
};

}  // namespace hvd
