// Decodes the messages between the coordinators of ranks.
#include "check.hpp"
#include "policy/messages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hvd::fuzz::check_canonical(hvd::fuzz::input(data, size), hvd::detail::decode_message,
                             [](const auto& message) { return hvd::detail::encode(message); });
  return 0;
}
