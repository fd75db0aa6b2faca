// Compares sparse allreduce with a dense sum.
#include "suite.hpp"

namespace hvd::test {
namespace {

constexpr std::array kSparseDtypes{torch::kInt32,        torch::kInt64,        torch::kFloat16,
                                   torch::kBFloat16,     torch::kFloat32,      torch::kFloat64,
                                   torch::kComplexFloat, torch::kComplexDouble};

/// Returns rows of an embedding of [7, 2]: some twice, some on several ranks, and none on rank 1.
torch::Tensor sparse_rows_of(int rank, torch::ScalarType dtype) {
  std::vector<std::int64_t> rows;
  if (rank != 1) rows = {rank, (rank + 2) % 7, rank, 6};
  const auto count = static_cast<std::int64_t>(rows.size());
  torch::Tensor values = (torch::arange(count * 2).view({count, 2}) + rank) % 5;
  if (torch::isComplexType(dtype)) values = values * c10::complex<double>(1, -2);
  return torch::sparse_coo_tensor(torch::tensor(rows, torch::kInt64).view({1, -1}),
                                  values.to(dtype), {7, 2});
}

void check_sparse(const Member& member, torch::ScalarType dtype, ReduceOp op, bool in_half) {
  const std::vector<int> ranks = member.ranks(in_half);
  torch::Tensor wanted = torch::zeros({7, 2}, torch::kComplexDouble);
  for (const int rank : ranks) wanted += sparse_rows_of(rank, dtype).to_dense();
  if (op == ReduceOp::average) wanted = wanted / static_cast<double>(ranks.size());

  const torch::Tensor mine = sparse_rows_of(member.context.rank(), dtype);
  const AllreduceOptions options{
      .op = op, .process_set = in_half ? member.half.id : 0, .context = &member.context};
  const SparseWork work = sparse_allreduce_async(mine, options);
  for (const auto& result : {sparse_allreduce(mine, options), work.wait()}) {
    EXPECT_TRUE(result.is_sparse() && result.is_coalesced());
    EXPECT_EQ(result.scalar_type(), dtype);
    ASSERT_EQ(result.sizes(), torch::IntArrayRef({7, 2}));
    const torch::Tensor dense = result.to_dense().to(torch::kComplexDouble);
    EXPECT_TRUE(torch::allclose(dense, wanted.to(dtype).to(torch::kComplexDouble), 1e-2, 1e-6))
        << dense << "\nnot " << wanted;
  }
}

}  // namespace

std::vector<NamedCase> sparse_cases() {
  std::vector<NamedCase> cases;
  for (const auto dtype : kSparseDtypes) {
    for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
      for (const bool in_half : {false, true}) {
        cases.push_back({std::string("sparse_allreduce_").append(to_string(op)) + "_" +
                             c10::toString(dtype) + (in_half ? "_process_set" : ""),
                         [=](const Member& member) { check_sparse(member, dtype, op, in_half); }});
      }
    }
  }
  cases.push_back(
      {"sparse_allreduce_scaled", [](const Member& member) {
         const auto size = static_cast<double>(member.context.size());
         const torch::Tensor one = torch::eye(3).to_sparse();
         const torch::Tensor result = sparse_allreduce(
             one,
             {.op = ReduceOp::sum, .prescale = 0.5, .postscale = 4, .context = &member.context});
         EXPECT_TRUE(torch::allclose(result.to_dense(), torch::eye(3) * 2 * size));
         const torch::Tensor complex = torch::eye(3, torch::kComplexDouble).to_sparse();
         const torch::Tensor scaled = sparse_allreduce(
             complex, {.op = ReduceOp::sum, .prescale = 0.5, .context = &member.context});
         EXPECT_TRUE(
             torch::allclose(scaled.to_dense(), torch::eye(3, torch::kComplexDouble) * 0.5 * size));
       }});
  cases.push_back(
      {"sparse_allreduce_of_two_sparse_dimensions_without_values", [](const Member& member) {
         const torch::Tensor none = torch::zeros({4, 5}).to_sparse();
         const torch::Tensor result = sparse_allreduce(none, {.context = &member.context});
         EXPECT_EQ(result._nnz(), 0);
         EXPECT_EQ(result.sizes(), none.sizes());
       }});
  return cases;
}

}  // namespace hvd::test
