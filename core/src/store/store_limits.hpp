// What every store accepts.
#pragma once

#include <cstddef>
#include <string_view>

namespace hvd {

inline constexpr std::size_t kMaxStoreKey = 256;
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;

/// Throw Errc::invalid_argument.
void check_store_key(std::string_view key);
void check_store_value(std::string_view key, std::size_t size);

}  // namespace hvd
