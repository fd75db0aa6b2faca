// Collectives of more than 2^31 elements in little memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/backend.hpp>

namespace hvd::test {

/// More than 32 bits can count.
inline constexpr std::int64_t kLarge = (std::int64_t{1} << 31) + 5;

/// Address space for at least kLarge elements of u8 or i16. Up to shortly before element 2^31 the
/// same 2 MiB and a page lie there again and again, a period that divides no power of two; from
/// there on every byte has memory of its own. So whoever loses a bit of an offset reads or writes
/// what is wrong there, and whoever loses one of a count leaves the end untouched. What writes the
/// same wherever the same is read, and nothing else on the way, can have its output there.
class LargeTensor {
 public:
  LargeTensor(DType dtype, std::int64_t count);
  ~LargeTensor();
  LargeTensor(const LargeTensor&) = delete;
  LargeTensor& operator=(const LargeTensor&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// fn(std::int64_t index) of each element that has memory of its own.
  template <class Fn>
  void for_each(Fn fn) const {
    for (std::int64_t i = 0; i < period(dtype_); ++i) fn(i);
    for (std::int64_t i = tail(dtype_); i < count_; ++i) fn(i);
  }

  /// The first element that lies where element `index` does.
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

/// One rank's side; all ranks call the same ones. Each returns how many elements of this rank's
/// results are wrong, or of its inputs were written to. `dtype` is u8 or i16.
struct LargeChecks {
  Backend& backend;
  DType dtype;
  int rank = 0;
  int size = 1;

  /// The largest, out of place.
  [[nodiscard]] std::int64_t allreduce() const;
  [[nodiscard]] std::int64_t broadcast() const;
  /// Rank 0 contributes kLarge elements and the others few.
  [[nodiscard]] std::int64_t allgather() const;
  /// Rank 0 gets kLarge elements and the others few. Of two ranks.
  [[nodiscard]] std::int64_t reducescatter() const;
  /// Rank 0 sends kLarge elements to rank 1. Of two ranks.
  [[nodiscard]] std::int64_t alltoall() const;
};

/// What `rank` has as element `index` in these checks.
[[nodiscard]] std::int64_t large_value(DType dtype, int rank, std::int64_t index) noexcept;
/// The largest of all ranks'.
[[nodiscard]] std::int64_t largest_value(DType dtype, int ranks, std::int64_t index) noexcept;

}  // namespace hvd::test
