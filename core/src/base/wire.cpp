#include <bit>
#include <limits>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd {
namespace {

template <class Unsigned>
void append(Bytes& bytes, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    bytes.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
  }
}

template <class Unsigned>
Unsigned decode(std::span<const std::byte> bytes) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    value = static_cast<Unsigned>(value | static_cast<Unsigned>(bytes[i]) << (8 * i));
  }
  return value;
}

}  // namespace

void WireWriter::u8(std::uint8_t value) { append(bytes_, value); }
void WireWriter::u16(std::uint16_t value) { append(bytes_, value); }
void WireWriter::u32(std::uint32_t value) { append(bytes_, value); }
void WireWriter::u64(std::uint64_t value) { append(bytes_, value); }
void WireWriter::f64(double value) { u64(std::bit_cast<std::uint64_t>(value)); }

void WireWriter::blob(std::span<const std::byte> bytes) {
  if (bytes.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(Errc::invalid_argument,
                fmt::format("a message field of {} bytes is too long", bytes.size()));
  }
  u32(static_cast<std::uint32_t>(bytes.size()));
  raw(bytes);
}

void WireWriter::text(std::string_view text) { blob(detail::bytes_of(text)); }

void WireWriter::raw(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::uint8_t WireReader::u8() { return decode<std::uint8_t>(raw(1)); }
std::uint16_t WireReader::u16() { return decode<std::uint16_t>(raw(2)); }
std::uint32_t WireReader::u32() { return decode<std::uint32_t>(raw(4)); }
std::uint64_t WireReader::u64() { return decode<std::uint64_t>(raw(8)); }
double WireReader::f64() { return std::bit_cast<double>(u64()); }

std::span<const std::byte> WireReader::blob(std::size_t limit) {
  const std::size_t size = u32();
  if (size > limit) fail(fmt::format("a field of {} bytes exceeds its limit of {}", size, limit));
  return raw(size);
}

std::string WireReader::text(std::size_t limit) {
  return std::string(detail::text_of(blob(limit)));
}

std::span<const std::byte> WireReader::raw(std::size_t size) {
  if (size > bytes_.size()) {
    fail(fmt::format("{} bytes wanted, {} left", size, bytes_.size()));
  }
  const std::span<const std::byte> head = bytes_.first(size);
  bytes_ = bytes_.subspan(size);
  return head;
}

std::uint32_t WireReader::count(std::size_t element_size) {
  const std::uint32_t value = u32();
  if (element_size > 0 && value > bytes_.size() / element_size) {
    fail(fmt::format("{} elements announced, only {} bytes left", value, bytes_.size()));
  }
  return value;
}

void WireReader::finish() const {
  if (!bytes_.empty()) fail(fmt::format("{} bytes left over", bytes_.size()));
}

void WireReader::fail(std::string_view why) const {
  throw Error(Errc::protocol, fmt::format("malformed {}: {}", what_, why));
}

}  // namespace hvd
