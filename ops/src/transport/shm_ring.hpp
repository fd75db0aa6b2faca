// The two ends of one byte ring in shared memory: single producer, single consumer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/ops/transport.hpp>

#include "transport/shm_layout.hpp"

namespace hvd {

/// Bytes handed over at a time: large enough to forget the cost of it, small enough that the other
/// side starts early.
inline constexpr std::size_t kShmPiece = std::size_t{64} << 10;

/// Both ends keep their own counter to themselves and take the other's from shared memory, where a
/// peer gone wrong may have put anything: an impossible one throws Errc::protocol naming `peer`.
class ShmWriter {
 public:
  ShmWriter() noexcept = default;
  ShmWriter(ShmCounters& counters, std::span<std::byte> data, int peer) noexcept
      : counters_(&counters), data_(data), peer_(peer) {}

  /// Room in bytes, a multiple of kShmUnit.
  [[nodiscard]] std::size_t room() const;
  /// Copies the next piece of a message of which `rest` is left, as far as there is room, publishes
  /// it and returns its size.
  std::size_t write(std::span<const std::byte> rest);

 private:
  ShmCounters* counters_ = nullptr;
  std::span<std::byte> data_;
  int peer_ = -1;
  std::uint64_t written_ = 0;
};

class ShmReader {
 public:
  ShmReader() noexcept = default;
  ShmReader(ShmCounters& counters, std::span<const std::byte> data, int peer) noexcept
      : counters_(&counters), data_(data), peer_(peer) {}

  /// Bytes to read, a multiple of kShmUnit.
  [[nodiscard]] std::size_t available() const;
  /// The next piece of a message of which `rest` bytes are left, in the ring itself; empty when
  /// nothing has come.
  [[nodiscard]] std::span<const std::byte> peek(std::size_t rest) const;
  /// Gives the space of a piece of that size back.
  void release(std::size_t size);

 private:
  ShmCounters* counters_ = nullptr;
  std::span<const std::byte> data_;
  int peer_ = -1;
  std::uint64_t read_ = 0;
};

}  // namespace hvd
