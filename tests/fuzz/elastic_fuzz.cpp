// Decodes what a worker of an elastic job sends to hvdrun, and what it gets.
#include <hvd/core/internal/elastic_messages.hpp>

#include "check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd::detail;
  const auto bytes = hvd::fuzz::input(data, size);
  hvd::fuzz::check_canonical(bytes, decode_waits, [](const Waits& waits) { return encode(waits); });
  hvd::fuzz::check_canonical(bytes, decode_elastic_order,
                             [](const ElasticOrder& order) { return encode(order); });
  return 0;
}
