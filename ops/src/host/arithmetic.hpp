// Defines the arithmetic of a reduction within a host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fusion/accumulator.hpp"
#include "fusion/identity.hpp"
#include "reduce/reduce_all.hpp"
#include "reduce/scale.hpp"

namespace hvd::detail {

class HostArithmetic {
 public:
  explicit HostArithmetic(const Arithmetic& asked) noexcept : asked_(asked) {}

  [[nodiscard]] std::size_t element() const noexcept { return size_of(asked_.dtype); }
  /// Returns the number of elements of a cache line.
  [[nodiscard]] std::int64_t line() const noexcept {
    return static_cast<std::int64_t>(64 / element());
  }
  /// Tells whether contributions, except absent ones, are the caller's values without a change.
  [[nodiscard]] bool as_given() const noexcept { return asked_.prescale == 1.0; }
  /// Stores `count` elements times prescale at `to`, or identity elements where `from` is null.
  void load(std::byte* to, const std::byte* from, std::int64_t count) const {
    if (from == nullptr) return fill_identity(asked_.dtype, asked_.op, to, count);
    scale(asked_.dtype, to, from, count, asked_.prescale);
  }
  [[nodiscard]] ReduceAll reduction() const noexcept {
    return {asked_.dtype, asked_.op, asked_.divisor, asked_.postscale};
  }

 private:
  Arithmetic asked_;
};

/// Results of more bytes than this, about half of a last-level cache, bypass the caches: they would
/// only evict other data.
inline constexpr std::size_t kHostStreamed = std::size_t{8} << 20;

}  // namespace hvd::detail
