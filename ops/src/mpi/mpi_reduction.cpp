#include "mpi/mpi_reduction.hpp"

#include "mpi/mpi_process.hpp"
#include "reduce/reduce.hpp"

namespace hvd::detail {
namespace {

/// MPI passes no argument of ours to a user function, so each pair has a function of its own.
template <DType kDType, ReduceOp kOp>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  reduce(kDType, kOp, inout, inout, in, *count);
}

/// The zero or NaN that a min or max returns depends on the order of the operands. Such an
/// operation is declared not to commute, so that MPI keeps the order of the ranks and all get the
/// same bits.
constexpr bool commutes(DType dtype, ReduceOp op) {
  return !is_floating_point(dtype) || (op != ReduceOp::min && op != ReduceOp::max);
}

MPI_Op create(MPI_User_function* function, bool commutes) {
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(function, commutes ? 1 : 0, &op);
  return op;
}

constexpr std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
constexpr std::size_t index_of(ReduceOp op) { return static_cast<std::size_t>(op); }

}  // namespace

MPI_Datatype mpi_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
      return MPI_UINT8_T;
    case DType::i8:
      return MPI_INT8_T;
    case DType::i16:
      return MPI_INT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;  // as bits, for our kernels
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::boolean:
      return MPI_UINT8_T;
    case DType::c64:  // calls have no complex types
    case DType::c128:
      break;
  }
  return MPI_DATATYPE_NULL;
}

MpiReductions::MpiReductions() {
  for (auto& row : own_) row.fill(MPI_OP_NULL);
  const auto add = [this]<DType kDType, ReduceOp kOp>() {
    own_[index_of(kDType)][index_of(kOp)] = create(&combine<kDType, kOp>, commutes(kDType, kOp));
  };
  const auto add_all = [&add]<DType kDType>() {
    add.template operator()<kDType, ReduceOp::average>();
    add.template operator()<kDType, ReduceOp::sum>();
    add.template operator()<kDType, ReduceOp::min>();
    add.template operator()<kDType, ReduceOp::max>();
    add.template operator()<kDType, ReduceOp::product>();
  };
  add_all.template operator()<DType::f16>();
  add_all.template operator()<DType::bf16>();
  add_all.template operator()<DType::boolean>();
  // MPICH 4.0 takes the bytes of MPI_UINT8_T for signed ones; Open MPI's vector code lets sums of 8
  // and 16 bits end at the largest number, where ours wrap.
  add_all.template operator()<DType::u8>();
  add_all.template operator()<DType::i8>();
  add_all.template operator()<DType::i16>();
  add.template operator()<DType::f32, ReduceOp::min>();
  add.template operator()<DType::f32, ReduceOp::max>();
  add.template operator()<DType::f64, ReduceOp::min>();
  add.template operator()<DType::f64, ReduceOp::max>();
}

MpiReductions::~MpiReductions() {
  if (!MpiUse::alive()) return;
  for (auto& row : own_) {
    for (MPI_Op& op : row) {
      if (op != MPI_OP_NULL) MPI_Op_free(&op);
    }
  }
}

MPI_Op MpiReductions::op(DType dtype, ReduceOp op) const noexcept {
  const MPI_Op own = own_[index_of(dtype)][index_of(op)];
  if (own != MPI_OP_NULL) return own;
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::product:
      return MPI_PROD;
  }
  return MPI_OP_NULL;
}

}  // namespace hvd::detail
