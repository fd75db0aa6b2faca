// What the ranks of a backend test put in, and what must come out.
#pragma once

#include <cstdint>
#include <vector>

#include <hvd/core/types.hpp>
#include <hvd/core/wire.hpp>

namespace hvd::test {

/// One element per value.
[[nodiscard]] Bytes encode(DType dtype, const std::vector<double>& values);

/// Rank `rank`'s elements: small numbers, sums and products of a few of which every type can hold.
[[nodiscard]] std::vector<double> sample(DType dtype, int rank, std::int64_t count);

struct Scales {
  double prescale = 1.0;
  double postscale = 1.0;
};

/// The serial reference: `sample` of all ranks, combined one after the other.
[[nodiscard]] std::vector<double> reduced_sample(DType dtype, ReduceOp op, int ranks,
                                                 std::int64_t count, const Scales& scales = {});

/// Elements that are missing or off by more than a few roundings; integers must be equal.
[[nodiscard]] std::int64_t count_wrong(DType dtype, const Bytes& bytes,
                                       const std::vector<double>& expected);

}  // namespace hvd::test
