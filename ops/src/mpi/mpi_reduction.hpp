// Translates hvd's element types and reduce operations to those of MPI.
#pragma once

#include <array>

#include <mpi.h>

#include <hvd/core/types.hpp>

namespace hvd::detail {

[[nodiscard]] MPI_Datatype mpi_type(DType dtype) noexcept;

/// Uses MPI's own operations where they mean what ours do, and runs our kernels inside MPI
/// otherwise. MPI has neither f16 nor bf16; its min and max of a NaN depend on the order, so that
/// ranks could get different results; and integers of 8 and 16 bits are not right in every MPI
/// library.
class MpiReductions {
 public:
  /// MPI must be initialised. It may be finalised before the end of the object.
  MpiReductions();
  ~MpiReductions();
  MpiReductions(const MpiReductions&) = delete;
  MpiReductions& operator=(const MpiReductions&) = delete;

  /// Returns MPI's operation. For an average it is the sum, and the caller divides.
  [[nodiscard]] MPI_Op op(DType dtype, ReduceOp op) const noexcept;

 private:
  std::array<std::array<MPI_Op, kReduceOpCount>, kDTypeCount>
      own_;  ///< null where MPI's own is used
};

}  // namespace hvd::detail
