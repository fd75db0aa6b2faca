// The shared memory of one rank, mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <hvd/core/fd.hpp>

#include "transport/sealed_memory.hpp"
#include "transport/shm_layout.hpp"

namespace hvd {

/// Every rank of the host writes to it.
class ShmSegment {
 public:
  /// Throws Errc::resource.
  [[nodiscard]] static ShmSegment create(const ShmLayout& layout, int owner);
  /// Maps what rank `owner` passed. Throws Errc::protocol naming the rank when it is not sealed or
  /// not of that layout.
  [[nodiscard]] static ShmSegment attach(UniqueFd fd, const ShmLayout& layout, int owner);

  ShmSegment() noexcept = default;

  [[nodiscard]] int fd() const noexcept { return memory_.fd(); }
  [[nodiscard]] ShmDoorbell& doorbell() const noexcept;
  [[nodiscard]] ShmCounters& counters(const ShmLayout& layout, int owner,
                                      int sender) const noexcept;
  [[nodiscard]] std::span<std::byte> data(const ShmLayout& layout, int owner,
                                          int sender) const noexcept;

 private:
  explicit ShmSegment(SealedMemory memory) noexcept : memory_(std::move(memory)) {}

  SealedMemory memory_;
};

}  // namespace hvd
