// Decodes requests to a store and its replies.
#include "check.hpp"
#include "store/store_protocol.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = hvd::fuzz::input(data, size);
  hvd::fuzz::check_canonical(bytes, hvd::detail::decode_store_request,
                             [](const auto& request) { return hvd::detail::encode(request); });
  hvd::fuzz::check_canonical(bytes, hvd::detail::decode_store_reply,
                             [](const auto& reply) { return hvd::detail::encode(reply); });
  return 0;
}
