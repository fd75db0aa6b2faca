// Decodes the frames between hvdrun and its agents.
#include "check.hpp"
#include "transport/frames.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd::launcher;
  hvd::fuzz::check_canonical(hvd::fuzz::input(data, size), decode, [](const Frame& frame) {
    const hvd::Bytes framed = encode(frame);
    return hvd::Bytes(framed.begin() + sizeof(std::uint32_t), framed.end());
  });
  return 0;
}
