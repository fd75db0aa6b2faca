// Proves the job's secret mutually at the start of every stream, as a state machine without I/O.
//
//   client                                    server
//   Hello(role client, nonce, who, label) →
//                                          ←  Hello(role server, nonce, who, label), proof
//   proof                                  →
//                                          ←  accept
//
// Proof and accept are HMAC-SHA256 over a role label and both hellos; the scheme is the
// challenge-response of ISO/IEC 9798-4 (three passes), plus one message that tells the client that
// the server accepts. docs/internals/protocol.md has the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/wire.hpp>

#include "net/crypto.hpp"

namespace hvd::net {

inline constexpr std::uint32_t kHandshakeMagic = 0x21'64'76'68;  // "hvd!" on the wire
inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxJobId = 128;
inline constexpr std::size_t kMaxLabel = 64;
inline constexpr std::size_t kNonceSize = 32;
inline constexpr std::int32_t kAnyRank = -2;  ///< any server, as that of a store
using Nonce = std::array<std::byte, kNonceSize>;

/// Returns a nonce of the system's cryptographic generator. Throws Errc::resource.
[[nodiscard]] Nonce fresh_nonce();

/// The bytes of magic, version and role, whose layout no version changes.
inline constexpr std::size_t kPrefixSize = 8;
inline constexpr std::size_t kHelloSize =
    kPrefixSize + kNonceSize + 3 * 4 + (1 + kMaxJobId) + (1 + kMaxLabel);

enum class Role : std::uint16_t { client = 1, server = 2 };

/// Holds the first message of a side: its identity, the peer that it wants, and the purpose of the
/// stream.
struct Hello {
  Role role = Role::client;
  Nonce nonce{};
  std::string job_id;
  std::uint32_t epoch = 0;
  std::int32_t from = 0;  ///< rank, -1: the launcher
  std::int32_t to = 0;    ///< the rank that is wanted, or `kAnyRank`
  std::string label;
};

/// Encodes a hello. Throws Errc::invalid_argument when a text is too long for its field.
[[nodiscard]] Bytes encode(const Hello& hello);
/// Decodes `bytes`, which must be exactly one hello with printable texts. Throws Errc::protocol.
[[nodiscard]] Hello decode_hello(std::span<const std::byte> bytes);
/// Tells whether a label is printable, not empty and at most 64 bytes long.
[[nodiscard]] bool is_label(std::string_view label) noexcept;

/// Runs one side of one handshake. The caller feeds it exactly `wanted()` bytes at a time, and
/// sends what `take_output()` returns after every step, also after a step that threw.
class Handshake {
 public:
  [[nodiscard]] static Handshake client(const Identity& self, int peer, std::string_view label,
                                        const Nonce& nonce);
  [[nodiscard]] static Handshake server(const Identity& self, const Nonce& nonce);

  [[nodiscard]] Bytes take_output() { return std::exchange(output_, {}); }
  [[nodiscard]] bool has_output() const noexcept { return !output_.empty(); }
  /// Returns the size of the next piece of input, or 0 when the handshake is done.
  [[nodiscard]] std::size_t wanted() const noexcept;
  /// Handles a piece of input. Throws Errc::unauthenticated when the peer holds another secret;
  /// Errc::protocol for anything malformed and for another version, job, epoch or rank than ours,
  /// naming both.
  void consume(std::span<const std::byte> input);
  [[nodiscard]] bool done() const noexcept { return state_ == State::done; }
  /// Returns the peer's hello, which is proven once `done()` is true.
  [[nodiscard]] const Hello& peer() const noexcept { return peer_; }

 private:
  enum class State { prefix, hello, proof, accept, done, failed };

  Handshake(const Identity& self, const Nonce& nonce, Role role);
  void take_prefix(std::span<const std::byte> input);
  void take_hello(std::span<const std::byte> input);
  void check_peer() const;
  void take_mac(std::string_view role_label, std::span<const std::byte> input);
  void queue(std::span<const std::byte> bytes);
  [[nodiscard]] Mac mac(std::string_view role_label) const;

  State state_ = State::prefix;
  Secret secret_;
  Hello self_;
  Hello peer_;
  Bytes own_hello_;
  Bytes peer_hello_;
  Bytes output_;
};

}  // namespace hvd::net
