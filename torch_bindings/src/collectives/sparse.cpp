#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/grouped_collectives.hpp>
#include <hvd/torch/sparse.hpp>

namespace hvd {

namespace {

// A rank sends its indices as a matrix. The first row holds the sizes of the sparse dimensions, the
// second begins with the number of values, and each further row holds the indices of one value.
constexpr std::int64_t kHeaderRows = 2;

void check_sparse(const torch::Tensor& tensor, const AllreduceOptions& options) {
  const auto refuse = [&options](const std::string& why) {
    throw Error(Errc::invalid_argument,
                fmt::format("sparse_allreduce '{}': {}", options.name, why));
  };
  if (!tensor.defined()) refuse("the tensor is undefined");
  if (!tensor.is_sparse()) refuse("the tensor is not sparse (COO); use allreduce");
  if (tensor.sparse_dim() == 0) refuse("the tensor has no sparse dimension");
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum) {
    refuse(fmt::format("op is average or sum, not {}", to_string(options.op)));
  }
  if (tensor.scalar_type() == torch::kBool && options.op == ReduceOp::average) {
    refuse("average is not defined on bool");
  }
  const bool scales = options.prescale != 1 || options.postscale != 1;
  if (scales && torch::isIntegralType(tensor.scalar_type(), true)) {
    refuse("scales need a floating or complex dtype");
  }
}

torch::Tensor indices_with_header(const torch::Tensor& tensor) {
  const torch::Tensor indices = tensor._indices();
  const torch::Tensor header = torch::zeros({kHeaderRows, tensor.sparse_dim()}, torch::kInt64);
  for (std::int64_t i = 0; i < tensor.sparse_dim(); ++i) header[0][i] = tensor.size(i);
  header[1][0] = indices.size(1);
  return torch::cat({header.to(indices.device()), indices.t()});
}

/// Returns the indices of all ranks, one in each row, in rank order.
torch::Tensor without_headers(const torch::Tensor& gathered,
                              const detail::SparseReduction& reduction) {
  Tensors parts;
  std::vector<std::int64_t> first;
  std::int64_t at = 0;
  for (std::int64_t rank = 0; rank < reduction.ranks; ++rank) {
    const torch::Tensor header = gathered.narrow(0, at, kHeaderRows).cpu().contiguous();
    const auto* const numbers = header.const_data_ptr<std::int64_t>();
    const std::vector<std::int64_t> sizes(numbers, numbers + reduction.sparse_dimensions);
    if (rank == 0) first = sizes;
    if (sizes != first) {
      throw Error(Errc::mismatch,
                  fmt::format("sparse_allreduce: the {}th rank has sizes [{}], the first [{}]",
                              rank, fmt::join(sizes, ", "), fmt::join(first, ", ")));
    }
    const std::int64_t count = numbers[reduction.sparse_dimensions];
    parts.push_back(gathered.narrow(0, at + kHeaderRows, count));
    at += kHeaderRows + count;
  }
  return torch::cat(parts);
}

/// Returns the dtype in which the values are added up.
torch::ScalarType sum_type(torch::ScalarType type) {
  if (type == torch::kFloat16 || type == torch::kBFloat16) return torch::kFloat32;
  return torch::isIntegralType(type, true) ? torch::kInt64 : type;
}

}  // namespace

torch::Tensor SparseWork::wait() const {
  const torch::NoGradGuard no_grad;
  const Tensors gathered = parts_.wait();
  const torch::ScalarType type = reduction_.dtype;
  const torch::Tensor indices = without_headers(gathered[0], reduction_);
  const torch::Tensor sum =
      torch::sparse_coo_tensor(indices.t(), gathered[1].to(sum_type(type)), reduction_.sizes)
          .coalesce();
  torch::Tensor values = sum._values();
  const double divisor =
      reduction_.op == ReduceOp::average ? static_cast<double>(reduction_.ranks) : 1.0;
  if (torch::isIntegralType(type, true)) {
    if (divisor != 1) values = values.div(reduction_.ranks, "trunc");
  } else {
    values = values * (reduction_.postscale / divisor);
  }
  return torch::sparse_coo_tensor(sum._indices(), values.to(type), reduction_.sizes,
                                  sum.options().dtype(type), /*is_coalesced=*/true);
}

SparseWork sparse_allreduce_async(const torch::Tensor& tensor, const AllreduceOptions& options) {
  const Context& context = context_of(options);
  check_sparse(tensor, options);
  const torch::NoGradGuard no_grad;
  const torch::Tensor mine = tensor.detach().coalesce();
  torch::Tensor values = mine._values();
  if (options.prescale != 1) values = values * options.prescale;
  TensorGroupWork parts = grouped_allgather_async(
      {indices_with_header(mine), values},
      {.name = options.name, .process_set = options.process_set, .context = options.context});
  detail::SparseReduction reduction;
  reduction.sizes = tensor.sizes().vec();
  reduction.sparse_dimensions = tensor.sparse_dim();
  reduction.dtype = tensor.scalar_type();
  reduction.op = options.op;
  reduction.postscale = options.postscale;
  reduction.ranks = static_cast<std::int64_t>(context.ranks_of(options.process_set).size());
  return {std::move(parts), std::move(reduction)};
}

torch::Tensor sparse_allreduce(const torch::Tensor& tensor, const AllreduceOptions& options) {
  return sparse_allreduce_async(tensor, options).wait();
}

}  // namespace hvd
