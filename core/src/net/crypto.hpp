// Declares the cryptographic functions that hvd takes from OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace hvd::net {

inline constexpr std::size_t kMacSize = 32;
using Mac = std::array<std::byte, kMacSize>;

/// Returns the HMAC-SHA256 (RFC 2104, FIPS 180-4). Throws Errc::internal when OpenSSL refuses.
[[nodiscard]] Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
/// Compares bytes in a time that does not depend on where they differ.
[[nodiscard]] bool equal_in_constant_time(std::span<const std::byte> a,
                                          std::span<const std::byte> b) noexcept;
/// Fills `out` from the system's cryptographic generator. Throws Errc::resource.
void fill_random(std::span<std::byte> out);
/// Overwrites `bytes` in a way that the compiler keeps.
void wipe(std::span<std::byte> bytes) noexcept;

}  // namespace hvd::net
