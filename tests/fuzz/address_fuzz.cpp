// Parses addresses as text, as they come from the environment or the store.
#include <string_view>

#include <hvd/core/internal/address.hpp>

#include "check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using hvd::fuzz::check;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(hvd::Address::parse(text).to_string() == text);
  } catch (const hvd::Error& error) {
    check(error.code() == hvd::Errc::invalid_argument);
  }
  return 0;
}
