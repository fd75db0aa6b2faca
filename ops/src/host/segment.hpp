// Lays out the shared memory of one rank: a header, its doorbell, its blocks for the groups that it
// is in, and its part of the arena.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hvd/core/internal/fd.hpp>

#include "shm/sealed_memory.hpp"
#include "shm/wait.hpp"

namespace hvd::detail {

/// Holds the first bytes of the segment. Its owner writes them before another rank maps it.
struct HostHeader {
  static constexpr std::uint64_t kMagic = 0x3165'6e67'6e65'7668;  // "hvengne1"
  static constexpr std::uint32_t kVersion = 3;
  static constexpr std::size_t kCpus = 1024;

  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t ranks = 0;
  std::uint32_t owner = 0;
  std::uint32_t reserved = 0;
  std::uint64_t size = 0;          ///< of the segment, in bytes
  std::uint64_t cpus[kCpus / 64];  ///< bit mask of the CPUs that the owner may run on
};

/// Holds what a rank publishes in one turn of a group, or to the group's ready fence. A short
/// contribution is in the same cache line as `number`, so that another rank fetches only one.
struct alignas(kLinePair) HostMessage {
  static constexpr std::size_t kShort = 40;
  static constexpr std::size_t kLong = std::size_t{32} << 10;

  /// Twice the number of the turn, or one more than twice the sequence number of the fence that
  /// begins the turn. It is stored after the rest of the message.
  std::atomic<std::uint64_t> number{0};
  std::atomic<std::uint64_t> operation{0};  ///< its name, which must be the same on all ranks
  std::uint64_t detail = 0;                 ///< one more word, which may differ between ranks
  std::byte brief[kShort];
  alignas(64) std::byte text[kLong];

  [[nodiscard]] std::byte* room(std::size_t bytes) noexcept {
    return bytes <= kShort ? brief : text;
  }
};

/// Tells how far a rank is with staged operations, in chunks since the group began.
struct HostProgress {
  /// The number of chunks that the rank has put into its slots.
  alignas(kLinePair) std::atomic<std::uint64_t> copied{0};
  /// The number of chunks that the rank is done with in the other ranks' slots.
  alignas(kLinePair) std::atomic<std::uint64_t> reduced{0};
};

/// Holds one rank's block of a group. The slots follow: see HostSlots.
struct HostControl {
  /// Messages of turns with even and odd numbers. A rank that writes the message of turn t+2 has
  /// read all messages of turn t+1, so all members are done with those of turn t.
  HostMessage messages[2];
  HostProgress progress;
};

/// A staged operation runs in chunks through slots (docs/internals/host-engine.md). A slot takes
/// the bytes that a rank gives to the others; in an allreduce these put their results in the same
/// place, because a core writes a cache line fastest after reading it.
struct HostSlots {
  static constexpr std::size_t kChunk = std::size_t{256} << 10;  ///< bytes
  static constexpr std::uint64_t kDepth = 3;
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kFirst = (sizeof(HostControl) + kPage - 1) / kPage * kPage;

  /// Returns the offset in the block of the slot for a chunk.
  [[nodiscard]] static constexpr std::size_t slot(std::uint64_t chunk) noexcept {
    return kFirst + chunk % kDepth * kChunk;
  }
  /// Returns the size of the whole block.
  [[nodiscard]] static constexpr std::size_t block_size() noexcept {
    return kFirst + kDepth * kChunk;
  }
};

/// Lists the process sets for which the owner has made a block. The block with index i is that of
/// the set `names[i - 1]`; the block with index 0 is that of all ranks of the host.
struct HostSets {
  static constexpr std::size_t kMost = 511;

  std::atomic<std::uint64_t> names[kMost];  ///< 0: none yet
  std::atomic<std::uint64_t> refused{0};    ///< the set for which there was no memory
};

/// Represents the shared memory of one rank, as a process maps it. Every rank maps the memory of
/// all ranks of the host.
class HostSegment {
 public:
  /// Makes a segment with an arena of `arena` bytes. The header, the doorbell, the HostSets and the
  /// first block have memory at once; the other blocks and the arena are address space, whose pages
  /// have to be committed before use. Throws Errc::resource.
  [[nodiscard]] static HostSegment create(int owner, int ranks, std::size_t arena);
  /// Maps the memory that rank `owner` passed. Throws Errc::protocol naming the rank when it is not
  /// sealed, or not what `create` makes.
  [[nodiscard]] static HostSegment attach(UniqueFd fd, int owner, int ranks);

  /// Returns what is wrong with the header of a segment of `size` bytes, or an empty text.
  [[nodiscard]] static std::string problem_with(const HostHeader& header, std::size_t size,
                                                int owner, int ranks);
  /// Returns the offset of the arena.
  [[nodiscard]] static std::size_t arena_begin() noexcept;

  HostSegment() noexcept = default;

  [[nodiscard]] const SealedMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
  [[nodiscard]] Doorbell& doorbell() const noexcept;
  [[nodiscard]] HostSets& sets() const noexcept;
  /// Returns the offset of a block; see HostSets. Only the first block has memory from the start.
  [[nodiscard]] static std::size_t block(std::size_t index = 0) noexcept {
    return 3 * HostSlots::kPage + index * HostSlots::block_size();
  }
  [[nodiscard]] std::bitset<HostHeader::kCpus> cpus() const;

 private:
  explicit HostSegment(SealedMemory memory) noexcept : memory_(std::move(memory)) {}

  SealedMemory memory_;
};

/// Returns the bytes of each rank's arena: the setting or, where that is 0, half of the machine's
/// memory divided by the ranks of the host. These are whole MiB, at least one.
[[nodiscard]] std::size_t arena_size_for(std::size_t setting, int ranks) noexcept;

}  // namespace hvd::detail
