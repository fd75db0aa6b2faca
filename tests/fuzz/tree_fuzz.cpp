// What a rank says through a control tree, before the message itself.
#include "check.hpp"
#include "net/tree_frame.hpp"

using namespace hvd::net;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kFirst = 64;
  constexpr int kEnd = 128;
  const auto bytes = hvd::fuzz::input(data, size);
  hvd::fuzz::check_canonical(
      bytes, [](const auto& input) { return decode_group_frame(input, kFirst, kEnd); },
      [](const GroupFrame& frame) {
        // A relay has a place for each of them.
        for (const int rank : frame.ranks.ranks()) hvd::fuzz::check(rank >= kFirst && rank < kEnd);
        return encode_group_frame(frame.ranks, frame.message);
      });
  hvd::fuzz::check_canonical(bytes, decode_member_frame, [](const MemberFrame& frame) {
    return encode_member_frame(frame.for_relay, frame.message);
  });
  return 0;
}
