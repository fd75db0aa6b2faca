// Defines the token, the message that ranks send each other at a ready fence over streams.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace hvd::detail {

struct Token {
  /// Tells whether the sender knows of an error: a rank is lost, or arrived at another operation.
  struct Verdict {
    enum class Kind : std::uint8_t { fine, lost, differs };
    Kind kind = Kind::fine;
    int culprit = -1;  ///< the lost or differing rank; -1 when fine
  };

  std::uint64_t sequence = 0;
  std::uint64_t digest = 0;  ///< the sender's own
  std::uint8_t round = 0;
  Verdict verdict;
};

inline constexpr std::size_t kTokenBytes = 24;
using TokenBytes = std::array<std::byte, kTokenBytes>;

[[nodiscard]] TokenBytes encode(const Token& token) noexcept;
/// Decodes a token. Returns nothing when the bytes are no token of a job of `size` ranks.
[[nodiscard]] std::optional<Token> decode_token(std::span<const std::byte, kTokenBytes> bytes,
                                                int size) noexcept;

}  // namespace hvd::detail
