// hvd's element types and reduce operations in MPI's words.
#pragma once

#include <array>

#include <mpi.h>

#include <hvd/core/types.hpp>

namespace hvd {

[[nodiscard]] MPI_Datatype mpi_type(DType dtype) noexcept;

/// MPI's own operations where they mean what ours do: integers but for min and max of u8, and sum
/// and product of f32 and f64. The rest runs our kernels inside MPI: MPI knows neither f16 nor
/// bf16, its min and max of a NaN depend on the order, so that ranks could end with different
/// results, and MPICH 4.0 compares u8 as if it were i8.
class MpiReductions {
 public:
  /// MPI is initialised and stays so for the life of the object, or is finalised before its end.
  MpiReductions();
  ~MpiReductions();
  MpiReductions(const MpiReductions&) = delete;
  MpiReductions& operator=(const MpiReductions&) = delete;

  /// `average` adds: dividing is left to the caller.
  [[nodiscard]] MPI_Op op(DType dtype, ReduceOp op) const noexcept;

 private:
  std::array<std::array<MPI_Op, kReduceOpCount>, kDTypeCount> own_;  ///< null: MPI's own is used
};

}  // namespace hvd
