// Where the ranks of a group meet: one block of shared memory per rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm_layout.hpp"

namespace hvd {

/// What a rank says in one turn. Short messages travel in the line of the flag itself, so that a
/// hand-over moves one cache line.
struct alignas(kShmLine) HostMessage {
  static constexpr std::size_t kShort = 40;
  static constexpr std::size_t kLong = std::size_t{32} << 10;

  std::atomic<std::uint64_t> tag{0};  ///< stored last: twice the turn, and 1 if it was announced
  std::uint64_t what = 0;             ///< which operation: the same on all ranks, or an error
  std::uint64_t detail = 0;           ///< one more word, which may differ
  std::byte brief[kShort];
  alignas(64) std::byte text[kLong];

  [[nodiscard]] std::byte* room(std::size_t bytes) noexcept {
    return bytes <= kShort ? brief : text;
  }
};

/// How far a rank has come with staged operations, in chunks since the group began.
struct HostProgress {
  alignas(kShmLine) std::atomic<std::uint64_t> copied{0};   ///< what it gives is in its slots
  alignas(kShmLine) std::atomic<std::uint64_t> reduced{0};  ///< it is through with the others'
};

/// One rank's block. The slots follow: see HostSlots.
struct HostControl {
  HostMessage messages[2];  ///< in turns: who writes the next but one has heard all of the last
  HostProgress progress;
};

/// A staged operation runs in chunks through slots (docs/host-engine.md). A slot takes what a rank
/// gives to the others; of an allreduce these put their results in the same place: a cache line
/// that a core has read it can soonest write.
class HostSlots {
 public:
  static constexpr std::size_t kChunk = std::size_t{256} << 10;  ///< bytes
  static constexpr std::uint64_t kDepth = 3;

  /// Offsets in the block, by chunk number.
  [[nodiscard]] static std::size_t slot(std::uint64_t chunk) noexcept;
  /// Of the whole block.
  [[nodiscard]] static std::size_t block_size() noexcept;
};

}  // namespace hvd
