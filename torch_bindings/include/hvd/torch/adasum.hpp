// Declares Adasum, a sum of gradients that depends on how much they agree.
#pragma once

#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/ops/collectives.hpp>

namespace hvd {

/// Combines the ranks' tensors, in place, by Adasum (Maleki et al. 2020, "Scaling distributed
/// training with adaptive summation", section 3). Two gradients a and b become
/// (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b, which is their sum where they are orthogonal and
/// their average where they are equal. More than two are combined along a binary tree in rank
/// order; the number of ranks need not be a power of two, because a rank without a partner passes
/// its gradient on to the next level. Each tensor has its own coefficients, as each layer has in
/// the paper.
///
/// Every rank combines its share of the elements. That takes one alltoall, one allreduce of three
/// numbers per pair and tensor at each of the log2(n) levels, and one allgather; it moves 2(n-1)/n
/// of the bytes, as a ring allreduce does. (The paper's recursive vector halving moves as many
/// bytes in another order.) The computation uses f32, or f64 when a tensor is f64 or c128; dot
/// products use f64. A complex number is two reals. All ranks get the same bits.
///
/// Blocks. It is collective among the ranks of the process set, which pass tensors of the same
/// shapes. Autograd does not record it. Throws Errc::invalid_argument when a tensor is undefined,
/// has an integer type or lies on another device than the first one, and what the collectives
/// throw.
void adasum_(const std::vector<torch::Tensor>& tensors, const CollectiveOptions& options = {});

/// Does the same for one tensor, and returns the result as a new tensor.
[[nodiscard]] torch::Tensor adasum(const torch::Tensor& tensor,
                                   const CollectiveOptions& options = {});

}  // namespace hvd
