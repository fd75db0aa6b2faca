// What lies where in the shared memory of one rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hvd {

/// First thing in the segment; written by its owner before anybody else sees it.
struct ShmHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t ranks = 0;
  std::uint32_t owner = 0;
  std::uint32_t reserved = 0;
  std::uint64_t capacity = 0;
};
inline constexpr std::uint64_t kShmMagic = 0x3167'6e69'7264'7668;  // "hvdring1"
inline constexpr std::uint32_t kShmVersion = 1;

/// Adjacent lines are fetched in pairs: two of them keep writers of neighbours apart.
inline constexpr std::size_t kShmLine = 128;

/// How a rank that sleeps is woken. `rings` is the futex.
struct alignas(kShmLine) ShmDoorbell {
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> sleeping{0};
};

/// Bytes ever written to and read from one ring, both multiples of `kShmUnit`.
struct ShmCounters {
  alignas(kShmLine) std::atomic<std::uint64_t> written{0};
  alignas(kShmLine) std::atomic<std::uint64_t> read{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Messages begin at multiples of this, so that elements never straddle the end of the ring.
inline constexpr std::size_t kShmUnit = 64;

/// One ring per sender. Both sides compute this from the number of ranks; nothing of it is read
/// from shared memory.
class ShmLayout {
 public:
  explicit ShmLayout(int ranks) noexcept;

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }  ///< of one ring
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] static constexpr std::size_t doorbell() noexcept { return kShmLine; }
  [[nodiscard]] std::size_t counters(int owner, int sender) const noexcept;
  [[nodiscard]] std::size_t data(int owner, int sender) const noexcept;

  [[nodiscard]] ShmHeader header(int owner) const noexcept;
  /// Empty when `bytes` begin with the header that `owner` should have written; else what is wrong.
  [[nodiscard]] std::string problem_with(std::span<const std::byte> bytes, int owner) const;

 private:
  [[nodiscard]] std::size_t data_begin() const noexcept;

  int ranks_;
  std::size_t capacity_;
};

}  // namespace hvd
