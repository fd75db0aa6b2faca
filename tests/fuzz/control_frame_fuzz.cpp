// Decodes the header of messages on a stream of the control channel.
#include "check.hpp"
#include "net/control_frame.hpp"

using namespace hvd::net;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kFirst = 64;
  constexpr int kEnd = 128;
  hvd::fuzz::check_canonical(
      hvd::fuzz::input(data, size),
      [](const auto& input) { return decode_control_frame(input, kFirst, kEnd); },
      [](const ControlFrame& frame) {
        // The relay must have a stream with each of these ranks.
        for (const int rank : frame.ranks.ranks()) hvd::fuzz::check(rank >= kFirst && rank < kEnd);
        return encode_control_frame(frame.ranks, frame.message);
      });
  return 0;
}
