// What a reduction asks of every element.
#pragma once

#include <hvd/core/backend.hpp>

namespace hvd {

struct Arithmetic {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int divisor = 1;  ///< of the sum of an average

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

}  // namespace hvd
