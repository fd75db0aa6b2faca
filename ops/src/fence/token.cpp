#include "fence/token.hpp"

#include <concepts>

namespace hvd::detail {
namespace {

using Verdict = Token::Verdict;

// The offsets of the fields. They are little-endian, as in all messages. WireWriter is not used,
// because it would allocate memory for each token.
constexpr std::size_t kSequence = 0;
constexpr std::size_t kDigest = 8;
constexpr std::size_t kCulprit = 16;
constexpr std::size_t kRound = 20;
constexpr std::size_t kKind = 21;
constexpr std::size_t kVersion = 22;
constexpr std::uint16_t kVersionOne = 0xa701;

template <std::unsigned_integral T>
void put(TokenBytes& bytes, std::size_t at, T value) noexcept {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <std::unsigned_integral T>
T get(std::span<const std::byte, kTokenBytes> bytes, std::size_t at) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

TokenBytes encode(const Token& token) noexcept {
  TokenBytes bytes;
  put(bytes, kSequence, token.sequence);
  put(bytes, kDigest, token.digest);
  put(bytes, kCulprit, static_cast<std::uint32_t>(token.verdict.culprit));
  put(bytes, kRound, token.round);
  put(bytes, kKind, static_cast<std::uint8_t>(token.verdict.kind));
  put(bytes, kVersion, kVersionOne);
  return bytes;
}

std::optional<Token> decode_token(std::span<const std::byte, kTokenBytes> bytes,
                                  int size) noexcept {
  Token token;
  token.sequence = get<std::uint64_t>(bytes, kSequence);
  token.digest = get<std::uint64_t>(bytes, kDigest);
  token.round = get<std::uint8_t>(bytes, kRound);
  token.verdict.culprit = static_cast<int>(get<std::uint32_t>(bytes, kCulprit));
  const auto kind = get<std::uint8_t>(bytes, kKind);
  if (get<std::uint16_t>(bytes, kVersion) != kVersionOne) return std::nullopt;
  if (kind > static_cast<std::uint8_t>(Verdict::Kind::differs)) return std::nullopt;
  token.verdict.kind = static_cast<Verdict::Kind>(kind);
  const bool fine = token.verdict.kind == Verdict::Kind::fine;
  const int culprit = token.verdict.culprit;
  if (fine ? culprit != -1 : (culprit < 0 || culprit >= size)) return std::nullopt;
  return token;
}

}  // namespace hvd::detail
