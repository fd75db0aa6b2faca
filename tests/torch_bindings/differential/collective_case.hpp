// Describes one collective as data, and computes its result with LibTorch in one process.
#pragma once

#include <string>
#include <vector>

#include "../job.hpp"

namespace hvd::test {

enum class Layout { row_major, transposed, scalar, empty };
/// The distribution of rows in allgather, reducescatter and alltoall.
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

/// Returns the input of rank `rank` of `ranks` for the `tensor`-th tensor of the group.
torch::Tensor input_of(const CollectiveCase& that, int rank, std::size_t ranks, int tensor);
/// Returns the rows to each rank for alltoall, which depend on sender and receiver when uneven.
std::vector<std::int64_t> splits_of(const CollectiveCase& that, int rank, std::size_t ranks);

/// Computes the results of all ranks from all inputs, by position in `ranks`; differentiable.
Tensors simulate(const CollectiveCase& that, const std::vector<int>& ranks, const Tensors& inputs);

/// Runs the case as one rank, blocking and asynchronously, and compares.
void check_case(const CollectiveCase& that, const Member& member);

}  // namespace hvd::test
