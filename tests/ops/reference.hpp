// Compares reductions with a serial reference, which is in long double, or exact for integers.
#pragma once

#include <cstddef>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::test {

/// A reduction with its type and its factors.
struct Operation {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int divisor = 1;  ///< of an average
};

/// Fails the current test unless `result` is what `contributions`, of one size, reduce to: integers
/// exactly (scaled in double, cut toward zero and to their range), floating point within the error
/// of rounding after every step, which is (n-1)·u·Σ|x| for sums.
void expect_reduced(const Operation& operation,
                    const std::vector<std::vector<std::byte>>& contributions,
                    const std::vector<std::byte>& result);

}  // namespace hvd::test
