// Tests the reader with any sequence of reads.
#include "check.hpp"

namespace {

using hvd::fuzz::check;

// The first half of the input chooses the reads; the second half is read.
void read_at_random(std::span<const std::byte> bytes) {
  const std::size_t half = bytes.size() / 2;
  const auto choices = bytes.first(half);
  hvd::WireReader reader(bytes.subspan(half), "fuzz");
  std::size_t left = reader.remaining();
  try {
    for (const std::byte choice : choices) {
      const auto value = static_cast<unsigned>(choice);
      const std::size_t limit = value >> 3;
      switch (value & 7) {
        case 0:
          static_cast<void>(reader.u8());
          break;
        case 1:
          static_cast<void>(reader.u16());
          break;
        case 2:
          static_cast<void>(reader.u32());
          break;
        case 3:
          static_cast<void>(reader.f64());
          break;
        case 4:
          check(reader.blob(limit).size() <= limit);
          break;
        case 5:
          check(reader.text(limit).size() <= limit);
          break;
        case 6:
          check(reader.raw(limit).size() == limit);
          break;
        case 7: {
          const std::uint32_t count = reader.count(limit);
          check(limit == 0 || count * limit <= reader.remaining());
          break;
        }
      }
      check(reader.remaining() <= left);
      left = reader.remaining();
    }
    reader.finish();
  } catch (const hvd::Error& error) {
    check(error.code() == hvd::Errc::protocol);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_at_random(hvd::fuzz::input(data, size));
  return 0;
}
