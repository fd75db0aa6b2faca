// Checks collectives of more than 2^31 elements in little memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/internal/backend.hpp>

namespace hvd::test {

/// A count that a signed integer of 32 bits cannot hold.
inline constexpr std::int64_t kLarge = (std::int64_t{1} << 31) + 5;

/// Address space for at least kLarge elements of u8 or i16. Up to shortly before element 2^31 it
/// maps the same 2 MiB and one page again and again, a period that divides no power of two. From
/// there on every byte has memory of its own. So code that loses a bit of an offset reads or writes
/// a wrong element, and code that loses a bit of a count leaves the end untouched. It can be an
/// output of an operation that writes equal results for equal inputs, and no partial results.
class LargeTensor {
 public:
  LargeTensor(DType dtype, std::int64_t count);
  ~LargeTensor();
  LargeTensor(const LargeTensor&) = delete;
  LargeTensor& operator=(const LargeTensor&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Calls fn(std::int64_t index) for one element, the first, of those that share memory.
  template <class Fn>
  void for_each(Fn fn) const {
    for (std::int64_t i = 0; i < period(dtype_); ++i) fn(i);
    for (std::int64_t i = tail(dtype_); i < count_; ++i) fn(i);
  }

  /// Returns the first element that shares memory with element `index`.
  [[nodiscard]] static std::int64_t place_of(DType dtype, std::int64_t index) noexcept {
    return index < tail(dtype) ? index % period(dtype) : index;
  }

 private:
  [[nodiscard]] static std::int64_t period(DType dtype) noexcept;  ///< elements
  [[nodiscard]] static std::int64_t tail(DType dtype) noexcept;    ///< the first element of it

  DType dtype_;
  std::int64_t count_;
  std::size_t bytes_ = 0;  ///< of address space
  std::byte* data_ = nullptr;
};

/// The checks of one rank; all ranks make the same ones. Each returns how many elements of this
/// rank's results are wrong, or of its inputs were modified. `dtype` is u8 or i16.
struct LargeChecks {
  Backend& backend;
  DType dtype;
  int rank = 0;
  int size = 1;

  /// Takes the maximum, out of place.
  [[nodiscard]] std::int64_t allreduce() const;
  [[nodiscard]] std::int64_t broadcast() const;
  /// Rank 0 contributes kLarge elements and the others few.
  [[nodiscard]] std::int64_t allgather() const;
  /// Rank 0 gets kLarge elements and the other rank few. There must be two ranks.
  [[nodiscard]] std::int64_t reducescatter() const;
  /// Rank 0 sends kLarge elements to rank 1. There must be two ranks.
  [[nodiscard]] std::int64_t alltoall() const;
};

/// Returns element `index` of `rank` in these checks.
[[nodiscard]] std::int64_t large_value(DType dtype, int rank, std::int64_t index) noexcept;
/// Returns the largest of these elements of all ranks.
[[nodiscard]] std::int64_t largest_value(DType dtype, int ranks, std::int64_t index) noexcept;

}  // namespace hvd::test
