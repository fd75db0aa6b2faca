// Defines the arithmetic of a reduction, and the form that elements have while they are being
// reduced.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/internal/backend.hpp>

namespace hvd::detail {

/// Describes what a reduction does to every element.
struct Arithmetic {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int divisor = 1;  ///< of the sum, for an average

  [[nodiscard]] static Arithmetic of(const AllreduceCall& call, int ranks) noexcept {
    return of(call, ranks, call.contributors);
  }
  [[nodiscard]] static Arithmetic of(const ReducescatterCall& call, int ranks) noexcept {
    return of(call, ranks, call.contributors);
  }

 private:
  template <class Call>
  [[nodiscard]] static Arithmetic of(const Call& call, int ranks, int contributors) noexcept {
    const bool divides = call.op == ReduceOp::average && call.dtype != DType::boolean;
    const int divisor = contributors > 0 ? contributors : ranks;
    return {call.dtype, call.op, call.prescale, call.postscale, divides ? divisor : 1};
  }
};

/// Elements are loaded, reduced, finished and unloaded. They keep their type, except those of an
/// integer mean, which are widened (see reduce/integer_mean.hpp).
class Accumulator {
 public:
  explicit Accumulator(const Arithmetic& arithmetic) noexcept;

  /// Returns the type that is reduced.
  [[nodiscard]] DType dtype() const noexcept { return widened_ ? DType::i64 : asked_.dtype; }
  /// Returns the operation between two values, which for an average is the sum.
  [[nodiscard]] ReduceOp op() const noexcept { return widened_ ? ReduceOp::sum : asked_.op; }
  /// Returns the number of values of `dtype` per element.
  [[nodiscard]] int lanes() const noexcept { return lanes_; }
  [[nodiscard]] std::size_t element_size() const noexcept {
    return size_of(dtype()) * static_cast<std::size_t>(lanes_);
  }
  /// Returns the number of bytes of an element of the caller.
  [[nodiscard]] std::size_t given_size() const noexcept { return size_of(asked_.dtype); }
  [[nodiscard]] bool widened() const noexcept { return widened_; }
  /// Tells whether elements are reduced as the caller gives them, so that no copy is needed.
  [[nodiscard]] bool as_given() const noexcept { return !widened_ && asked_.prescale == 1.0; }

  /// Stores `count` elements of the caller times prescale at `to`, or the identity element when
  /// `from` is null. `to` may be `from` unless elements are widened.
  void load(std::byte* to, const std::byte* from, std::int64_t count) const;
  /// Divides a floating-point average and scales, in place.
  void finish(std::byte* data, std::int64_t count) const;
  /// Stores finished elements at the caller's `to`, unless that is null. A mean is narrowed.
  void unload(std::byte* to, const std::byte* from, std::int64_t count) const;

 private:
  Arithmetic asked_;
  bool widened_;
  int lanes_;
};

}  // namespace hvd::detail
