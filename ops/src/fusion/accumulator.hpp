// How elements look while they are being reduced, and the ways in and out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fusion/arithmetic.hpp"

namespace hvd {

/// Elements are loaded, reduced, finished and unloaded. An integer mean travels widened (see
/// reduce/integer_mean.hpp); everything else as it is.
class Accumulator {
 public:
  explicit Accumulator(const Arithmetic& arithmetic) noexcept;

  /// Of what is being reduced.
  [[nodiscard]] DType dtype() const noexcept { return widened_ ? DType::i64 : asked_.dtype; }
  /// `average` adds.
  [[nodiscard]] ReduceOp op() const noexcept { return widened_ ? ReduceOp::sum : asked_.op; }
  /// Values of `dtype` per element.
  [[nodiscard]] int lanes() const noexcept { return lanes_; }
  [[nodiscard]] std::size_t element_size() const noexcept {
    return size_of(dtype()) * static_cast<std::size_t>(lanes_);
  }
  /// Bytes of an element of the caller's.
  [[nodiscard]] std::size_t given_size() const noexcept { return size_of(asked_.dtype); }
  /// Whether elements are reduced as the caller gives them, so that no copy is needed.
  [[nodiscard]] bool widened() const noexcept { return widened_; }
  [[nodiscard]] bool as_given() const noexcept { return !widened_ && asked_.prescale == 1.0; }

  /// `count` elements of the caller times prescale to `to`; the identity when `from` is null. In
  /// place unless widened.
  void load(std::byte* to, const std::byte* from, std::int64_t count) const;
  /// Divides a floating-point average and scales, in place.
  void finish(std::byte* data, std::int64_t count) const;
  /// Finished elements to the caller's `to`, unless that is null; a mean is narrowed.
  void unload(std::byte* to, const std::byte* from, std::int64_t count) const;

 private:
  Arithmetic asked_;
  bool widened_;
  int lanes_;
};

}  // namespace hvd
