// One collective as data, and what it must give, computed by LibTorch in one process.
#pragma once

#include <string>
#include <vector>

#include "../job.hpp"

namespace hvd::test {

enum class Layout { row_major, transposed, scalar, empty };
/// Of allgather, reducescatter and alltoall.
enum class Rows { even, uneven, few };

struct CollectiveCase {
  OpKind kind = OpKind::allreduce;
  torch::ScalarType dtype = torch::kFloat32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1;
  double postscale = 1;
  Compression compression = Compression::none;
  Layout layout = Layout::row_major;
  Rows rows = Rows::even;
  bool in_place = false;
  bool in_half = false;  ///< in the process sets of even and odd ranks
  bool gradient = false;
  int group = 0;  ///< tensors of a grouped form; 0: the single form

  [[nodiscard]] std::string name() const;
};

/// What rank `rank` of `ranks` gives as the `tensor`-th of its group.
torch::Tensor input_of(const CollectiveCase& that, int rank, std::size_t ranks, int tensor);
/// Rows to each rank, for alltoall: depends on sender and receiver when uneven.
std::vector<std::int64_t> splits_of(const CollectiveCase& that, int rank, std::size_t ranks);

/// The results of all ranks from the inputs of all, by place in `ranks`; differentiable.
Tensors simulate(const CollectiveCase& that, const std::vector<int>& ranks, const Tensors& inputs);

/// Runs the case as one rank, blocking and asynchronously, and compares.
void check_case(const CollectiveCase& that, const Member& member);

}  // namespace hvd::test
