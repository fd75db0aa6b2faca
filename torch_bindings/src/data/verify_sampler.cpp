#include <algorithm>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/distributed_sampler.hpp>
#include <hvd/torch/elastic_sampler.hpp>
#include <hvd/torch/grouped_collectives.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

namespace {

using Indices = std::vector<std::size_t>;

torch::Tensor tensor_of_indices(const Indices& indices) {
  torch::Tensor tensor = torch::empty({std::ssize(indices)}, torch::kInt64);
  std::copy(indices.begin(), indices.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

struct Shards {
  std::vector<Indices> by_rank;
  std::vector<std::int64_t> dataset_sizes;
};

Shards gather(Context& context, const Indices& mine, std::size_t dataset_size) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor header = tensor_of_indices({mine.size(), dataset_size}).view({1, 2});
  const Tensors all = grouped_allgather({header, tensor_of_indices(mine)},
                                        {.name = "verify_sampler", .context = &context});
  const auto headers = all[0].accessor<std::int64_t, 2>();
  const auto* next = all[1].const_data_ptr<std::int64_t>();
  Shards shards;
  for (std::int64_t rank = 0; rank < all[0].size(0); ++rank) {
    shards.by_rank.emplace_back(next, next + headers[rank][0]);
    shards.dataset_sizes.push_back(headers[rank][1]);
    next += headers[rank][0];
  }
  return shards;
}

/// Returns the first problem in words, or an empty text. `expected` holds the examples of the pass.
std::string problem_of(const Shards& shards, const Indices& expected, bool may_leave_out) {
  const std::size_t ranks = shards.by_rank.size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (shards.dataset_sizes[rank] != shards.dataset_sizes[0]) {
      return fmt::format("rank {} has a data set of {}, rank 0 of {}", rank,
                         shards.dataset_sizes[rank], shards.dataset_sizes[0]);
    }
    if (shards.by_rank[rank].size() != shards.by_rank[0].size()) {
      return fmt::format("rank {} gets {} examples, rank 0 {}", rank, shards.by_rank[rank].size(),
                         shards.by_rank[0].size());
    }
  }
  constexpr std::size_t kNobody = ~std::size_t{0};
  std::vector<std::size_t> owner(static_cast<std::size_t>(shards.dataset_sizes[0]), kNobody);
  std::size_t twice = 0;
  std::string first_twice;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (const std::size_t index : shards.by_rank[rank]) {
      if (index >= owner.size()) {
        return fmt::format("rank {} gets example {} of {}", rank, index, owner.size());
      }
      if (owner[index] != kNobody && twice++ == 0) {
        first_twice = fmt::format("ranks {} and {} both get example {}", owner[index], rank, index);
      }
      owner[index] = rank;
    }
  }
  std::size_t missing = 0;
  std::size_t first_missing = 0;
  for (const std::size_t index : expected) {
    if (owner[index] == kNobody && missing++ == 0) first_missing = index;
  }
  if (twice >= ranks || (twice > 0 && may_leave_out)) return first_twice;
  if (missing >= ranks || (missing > 0 && !may_leave_out)) {
    return fmt::format("no rank gets example {}", first_missing);
  }
  return {};
}

Verification verification_of(std::string problem) {
  const bool identical = problem.empty();
  return {identical, std::move(problem)};
}

}  // namespace

Verification verify(const DistributedSampler& sampler, Context& context) {
  const Shards shards = gather(context, sampler.indices(), sampler.dataset_size());
  Indices everything(sampler.dataset_size());
  for (std::size_t index = 0; index < everything.size(); ++index) everything[index] = index;
  const bool drops = shards.by_rank.size() * sampler.indices().size() < sampler.dataset_size();
  return verification_of(problem_of(shards, everything, drops));
}

Verification verify(const ElasticSampler& sampler, Context& context) {
  const Shards shards = gather(context, sampler.indices(), sampler.dataset_size());
  return verification_of(problem_of(shards, sampler.remaining(), false));
}

}  // namespace hvd
