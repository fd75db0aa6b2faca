// A sum of gradients that heeds how much they agree.
#pragma once

#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/ops/collectives.hpp>

namespace hvd {

/// Adasum (Maleki et al. 2020, "Scaling distributed training with adaptive summation", section 3):
/// two gradients become (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b, which is their sum where they
/// are orthogonal and their average where they are equal; more than two by a tree of neighbours, in
/// rank order. Any number of ranks; an odd one out goes up a level as it is. Each tensor has
/// coefficients of its own, so these are the layers of the paper.
///
/// Every rank combines its part of the elements: one alltoall, an allreduce of three numbers per
/// pair and tensor at each of the log2(n) levels, and one allgather, 2(n-1)/n of the bytes like a
/// ring. (The paper's recursive vector halving moves as many, with another order of messages.)
/// Computed in f32, or in f64 when there is an f64 tensor, with products in f64; the same bits on
/// all ranks.
///
/// In place; blocking; collective among the ranks of the process set, which pass tensors of the
/// same shapes. Not recorded by autograd. Throws Errc::invalid_argument (undefined, not floating,
/// not all on the CPU or one device), and what the collectives throw.
void adasum_(Context& context, const std::vector<torch::Tensor>& tensors,
             const CollectiveOptions& options = {});
void adasum_(const std::vector<torch::Tensor>& tensors, const CollectiveOptions& options = {});

/// A new tensor.
[[nodiscard]] torch::Tensor adasum(Context& context, const torch::Tensor& tensor,
                                   const CollectiveOptions& options = {});
[[nodiscard]] torch::Tensor adasum(const torch::Tensor& tensor,
                                   const CollectiveOptions& options = {});

}  // namespace hvd
