// Cuts a byte stream into frames as a receiver does.
#include "check.hpp"
#include "net/frame.hpp"

using namespace hvd::net;
using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kLimit = 4096;
  auto rest = hvd::fuzz::input(data, size);
  try {
    while (rest.size() >= kFrameHeaderSize) {
      const FrameHeader header =
          decode_frame_header(rest.first(kFrameHeaderSize), FrameType::control, kLimit);
      check(header.length <= kLimit);
      if (rest.size() - kFrameHeaderSize < header.length) break;
      const auto payload = rest.subspan(kFrameHeaderSize, header.length);
      const hvd::Bytes again = encode_frame(FrameType::control, payload);
      const auto whole = rest.first(kFrameHeaderSize + header.length);
      check(again == hvd::Bytes(whole.begin(), whole.end()));
      rest = rest.subspan(whole.size());
    }
  } catch (const hvd::Error& error) {
    check(error.code() == hvd::Errc::protocol);
  }
  return 0;
}
