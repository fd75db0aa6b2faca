// What the coordinator and the ranks tell each other.
#include "check.hpp"
#include "coordinator/messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hvd::fuzz::check_canonical(hvd::fuzz::input(data, size), hvd::decode_message,
                             [](const auto& message) { return hvd::encode(message); });
  return 0;
}
