// The shared memory of one rank: a header, its doorbell, its blocks for the groups that it is in,
// and its part of the arena.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hvd/core/fd.hpp>

#include "shm/sealed_memory.hpp"
#include "shm/wait.hpp"

namespace hvd {

/// First thing in the segment; written by its owner before anybody else sees it.
struct HostHeader {
  static constexpr std::uint64_t kMagic = 0x3165'6e67'6e65'7668;  // "hvengne1"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::size_t kCpus = 1024;

  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t ranks = 0;
  std::uint32_t owner = 0;
  std::uint32_t reserved = 0;
  std::uint64_t size = 0;          ///< of the segment, in bytes
  std::uint64_t cpus[kCpus / 64];  ///< that the owner may run on
};

/// What a rank publishes in one turn of a group, or to the group's ready fence. Short contributions
/// travel in the line of the number itself, so that a hand-over moves one cache line.
struct alignas(kLinePair) HostMessage {
  static constexpr std::size_t kShort = 40;
  static constexpr std::size_t kLong = std::size_t{32} << 10;

  /// Stored last: twice the number of the turn, or one more than twice the sequence number of the
  /// fence that begins the turn.
  std::atomic<std::uint64_t> number{0};
  std::atomic<std::uint64_t> operation{0};  ///< the same on all ranks, or it is an error
  std::uint64_t detail = 0;                 ///< one more word, which may differ
  std::byte brief[kShort];
  alignas(64) std::byte text[kLong];

  [[nodiscard]] std::byte* room(std::size_t bytes) noexcept {
    return bytes <= kShort ? brief : text;
  }
};

/// How far a rank has come with staged operations, in chunks since the group began.
struct HostProgress {
  alignas(kLinePair) std::atomic<std::uint64_t> copied{0};   ///< what it gives is in its slots
  alignas(kLinePair) std::atomic<std::uint64_t> reduced{0};  ///< it is through with the others'
};

/// One rank's block of a group. The slots follow: see HostSlots.
struct HostControl {
  HostMessage messages[2];  ///< in turns: who writes the next but one has read all of the last
  HostProgress progress;
};

/// A staged operation runs in chunks through slots (docs/internals/host-engine.md). A slot takes
/// what a rank gives to the others; in an allreduce these put their results in the same place: a
/// core that has read a cache line can soonest write it.
struct HostSlots {
  static constexpr std::size_t kChunk = std::size_t{256} << 10;  ///< bytes
  static constexpr std::uint64_t kDepth = 3;
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kFirst = (sizeof(HostControl) + kPage - 1) / kPage * kPage;

  /// Offsets in the block, by chunk number.
  [[nodiscard]] static constexpr std::size_t slot(std::uint64_t chunk) noexcept {
    return kFirst + chunk % kDepth * kChunk;
  }
  /// Of the whole block.
  [[nodiscard]] static constexpr std::size_t block_size() noexcept {
    return kFirst + kDepth * kChunk;
  }
};

/// For which process sets its owner has made a block. The block with index i is that of the set
/// `names[i - 1]`; the block with index 0 is that of all ranks of the host.
struct HostSets {
  static constexpr std::size_t kMost = 511;

  std::atomic<std::uint64_t> names[kMost];  ///< 0: none yet
  std::atomic<std::uint64_t> refused{0};    ///< the set for which there was no memory
};

/// Every rank of the host maps every other's.
class HostSegment {
 public:
  /// `arena` bytes of address space, used as they are committed; what lies before is there at once.
  /// Throws Errc::resource.
  [[nodiscard]] static HostSegment create(int owner, int ranks, std::size_t arena);
  /// Maps what rank `owner` passed. Throws Errc::protocol naming the rank when it is not sealed, or
  /// not what `create` makes.
  [[nodiscard]] static HostSegment attach(UniqueFd fd, int owner, int ranks);

  /// Empty when the header of a segment of `size` bytes is as it should be; else what is wrong.
  [[nodiscard]] static std::string problem_with(const HostHeader& header, std::size_t size,
                                                int owner, int ranks);
  /// Where the arena begins.
  [[nodiscard]] static std::size_t arena_begin() noexcept;

  HostSegment() noexcept = default;

  [[nodiscard]] const SealedMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
  [[nodiscard]] Doorbell& doorbell() const noexcept;
  [[nodiscard]] HostSets& sets() const noexcept;
  /// Where a block begins; see HostSets. Only the first one has memory from the start.
  [[nodiscard]] static std::size_t block(std::size_t index = 0) noexcept {
    return 3 * HostSlots::kPage + index * HostSlots::block_size();
  }
  [[nodiscard]] std::bitset<HostHeader::kCpus> cpus() const;

 private:
  explicit HostSegment(SealedMemory memory) noexcept : memory_(std::move(memory)) {}

  SealedMemory memory_;
};

/// Bytes for each rank's arena: what the setting says, or half of the machine's memory over the
/// ranks of the host; at least one MiB, in whole ones.
[[nodiscard]] std::size_t arena_size_for(std::size_t setting, int ranks) noexcept;

}  // namespace hvd
