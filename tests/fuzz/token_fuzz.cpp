// Decodes the tokens that ranks exchange when they arrive at an operation.
#include <algorithm>

#include "check.hpp"
#include "fence/token.hpp"

using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < hvd::detail::kTokenBytes) return 0;
  constexpr int kRanks = 5;
  const auto bytes = hvd::fuzz::input(data, size).first<hvd::detail::kTokenBytes>();
  const auto token = hvd::detail::decode_token(bytes, kRanks);
  if (!token) return 0;
  check(token->verdict.culprit < kRanks);
  const hvd::detail::TokenBytes again = hvd::detail::encode(*token);
  check(std::equal(again.begin(), again.end(), bytes.begin()));
  return 0;
}
