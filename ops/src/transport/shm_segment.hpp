// The shared memory of one rank, mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/fd.hpp>

#include "transport/shm_layout.hpp"

namespace hvd {

/// A memfd: without a name, gone with its last holder, never in /dev/shm. Sealed, so that no holder
/// can shrink it under another's feet. The mapping is not inherited by fork.
class ShmSegment {
 public:
  /// Throws Errc::resource.
  [[nodiscard]] static ShmSegment create(const ShmLayout& layout, int owner);
  /// Maps what rank `owner` passed. Throws Errc::protocol naming the rank when it is not sealed or
  /// not of that layout.
  [[nodiscard]] static ShmSegment attach(UniqueFd fd, const ShmLayout& layout, int owner);

  ShmSegment() noexcept = default;
  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;
  ~ShmSegment();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] ShmDoorbell& doorbell() const noexcept;
  [[nodiscard]] ShmCounters& counters(const ShmLayout& layout, int owner,
                                      int sender) const noexcept;
  [[nodiscard]] std::span<std::byte> data(const ShmLayout& layout, int owner,
                                          int sender) const noexcept;

 private:
  ShmSegment(UniqueFd fd, std::size_t size);

  UniqueFd fd_;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hvd
