// The shared memory of one rank: a header, its doorbell, its block for the group of all ranks, and
// its part of the arena.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hvd/core/fd.hpp>

#include "transport/sealed_memory.hpp"
#include "transport/shm_layout.hpp"

namespace hvd {

/// First thing in the segment; written by its owner before anybody else sees it.
struct HostHeader {
  static constexpr std::uint64_t kMagic = 0x3165'6e67'6e65'7668;  // "hvengne1"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kCpus = 1024;

  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t ranks = 0;
  std::uint32_t owner = 0;
  std::uint32_t reserved = 0;
  std::uint64_t size = 0;          ///< of the segment, in bytes
  std::uint64_t cpus[kCpus / 64];  ///< that the owner may run on
};

/// Everybody maps everybody's.
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
  [[nodiscard]] ShmDoorbell& doorbell() const noexcept;
  /// The block of the group of all ranks.
  [[nodiscard]] static constexpr std::size_t block() noexcept { return 2 * kPage; }
  [[nodiscard]] std::bitset<HostHeader::kCpus> cpus() const;

 private:
  static constexpr std::size_t kPage = 4096;

  explicit HostSegment(SealedMemory memory) noexcept : memory_(std::move(memory)) {}

  SealedMemory memory_;
};

/// Bytes for each rank's arena: what the setting says, or half of the machine's memory over the
/// ranks of the host; at least one MiB, in whole ones.
[[nodiscard]] std::size_t arena_size_for(std::size_t setting, int ranks) noexcept;

}  // namespace hvd
