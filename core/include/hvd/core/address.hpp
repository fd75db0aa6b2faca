// Where a server listens, as text: "unix:@name" (abstract), "unix:/path", "tcp:host:port",
// "tcp:[v6]:port".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

struct Address {
  enum class Kind : std::uint8_t { unix_socket, tcp };
  Kind kind = Kind::tcp;
  std::string host;  ///< tcp: name or address; unix: "@name" or a path
  std::uint16_t port = 0;

  /// Throws Errc::invalid_argument quoting the text.
  [[nodiscard]] static Address parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
};

}  // namespace hvd
