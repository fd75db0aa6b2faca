// Encodes bytes that cross a process boundary, with one writer and one bounds-checked reader. The
// encoding is little-endian, fixed-width and canonical, so that equal values have equal encodings.
// docs/internals/protocol.md describes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

class WireWriter {
 public:
  void u8(std::uint8_t value);
  void u16(std::uint16_t value);
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);
  void i32(std::int32_t value) { u32(static_cast<std::uint32_t>(value)); }
  void i64(std::int64_t value) { u64(static_cast<std::uint64_t>(value)); }
  void f64(double value);
  /// Writes the length as u32, then the bytes.
  void blob(std::span<const std::byte> bytes);
  void text(std::string_view text);
  void raw(std::span<const std::byte> bytes);

  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Every read throws Errc::protocol naming `what` when the bytes end early or a length exceeds the
/// limit. The reader does not own the bytes.
class WireReader {
 public:
  /// `what` names the message in errors and must outlive the reader.
  WireReader(std::span<const std::byte> bytes, std::string_view what) noexcept
      : bytes_(bytes), what_(what) {}

  [[nodiscard]] std::uint8_t u8();
  [[nodiscard]] std::uint16_t u16();
  [[nodiscard]] std::uint32_t u32();
  [[nodiscard]] std::uint64_t u64();
  [[nodiscard]] std::int32_t i32() { return static_cast<std::int32_t>(u32()); }
  [[nodiscard]] std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  [[nodiscard]] double f64();
  [[nodiscard]] std::span<const std::byte> blob(std::size_t limit);
  [[nodiscard]] std::string text(std::size_t limit);
  [[nodiscard]] std::span<const std::byte> raw(std::size_t size);
  /// Reads a count of elements that each take at least `element_size` more bytes. It is bounded by
  /// the bytes that are left.
  [[nodiscard]] std::uint32_t count(std::size_t element_size);
  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size(); }
  /// Throws when bytes are left over.
  void finish() const;
  [[noreturn]] void fail(std::string_view why) const;

 private:
  std::span<const std::byte> bytes_;
  std::string_view what_;
};

}  // namespace hvd
