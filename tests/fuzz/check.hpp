// Reports violated assertions of a fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd::fuzz {

/// Ends the program so that libFuzzer keeps the input.
inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

inline std::span<const std::byte> input(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

/// Bytes that `decode` accepts must encode to the same bytes, and `decode` may throw only protocol
/// errors.
template <class Decode, class Encode>
void check_canonical(std::span<const std::byte> bytes, Decode decode, Encode encode) {
  try {
    const Bytes again = encode(decode(bytes));
    check(Bytes(bytes.begin(), bytes.end()) == again);
  } catch (const Error& error) {
    check(error.code() == Errc::protocol);
  }
}

}  // namespace hvd::fuzz
