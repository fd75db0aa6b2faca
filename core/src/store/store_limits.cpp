#include "store/store_limits.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {

void check_store_key(std::string_view key) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (key.empty() || key.size() > kMaxStoreKey || !printable) {
    throw Error(Errc::invalid_argument,
                fmt::format("a store key is 1 to {} printable characters", kMaxStoreKey));
  }
}

void check_store_value(std::string_view key, std::size_t size) {
  if (size > kMaxStoreValue) {
    throw Error(Errc::invalid_argument,
                fmt::format("the value of store key '{}' has {} bytes, {} are the limit", key, size,
                            kMaxStoreValue));
  }
}

}  // namespace hvd
