// Makes the inputs of the ranks of a backend test, and the results that they must have.
#pragma once

#include <cstdint>
#include <vector>

#include <hvd/core/internal/wire.hpp>
#include <hvd/core/types.hpp>

namespace hvd::test {

/// Returns one element per value.
[[nodiscard]] Bytes encode(DType dtype, const std::vector<double>& values);

/// Returns the elements of `rank`: numbers so small that every type can hold sums and products of a
/// few of them.
[[nodiscard]] std::vector<double> sample(DType dtype, int rank, std::int64_t count);

struct Scales {
  double prescale = 1.0;
  double postscale = 1.0;
};

/// Returns the serial reference: `sample` of all ranks, combined one after the other.
[[nodiscard]] std::vector<double> reduced_sample(DType dtype, ReduceOp op, int ranks,
                                                 std::int64_t count, const Scales& scales = {});

/// Returns the number of elements that are missing or off by more than a few roundings. Integers
/// must be equal.
[[nodiscard]] std::int64_t count_wrong(DType dtype, const Bytes& bytes,
                                       const std::vector<double>& expected);

}  // namespace hvd::test
