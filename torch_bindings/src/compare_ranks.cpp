#include "compare_ranks.hpp"

#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/torch/collectives.hpp>

namespace hvd {

namespace {

using Values = std::span<const std::int64_t>;

Values values_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(tensor.numel())};
}

std::vector<Values> split(Values all, Values counts) {
  std::vector<Values> by_rank;
  for (const std::int64_t count : counts) {
    by_rank.push_back(all.first(static_cast<std::size_t>(count)));
    all = all.subspan(static_cast<std::size_t>(count));
  }
  return by_rank;
}

std::string describe(const std::string& name, const std::vector<int>& ranks, int first) {
  return ranks.size() == 1
             ? fmt::format("{}: rank {} differs from rank {}", name, ranks.front(), first)
             : fmt::format("{}: ranks {} differ from rank {}", name, fmt::join(ranks, ", "), first);
}

}  // namespace

std::string first_difference(Context& context, const std::vector<NamedDigest>& mine,
                             const std::string& topic, std::int32_t process_set) {
  const std::vector<int> ranks = context.ranks_of(process_set);
  std::vector<std::int64_t> digests;
  digests.reserve(mine.size());
  for (const auto& [name, digest] : mine) digests.push_back(static_cast<std::int64_t>(digest));

  const TensorWork counts_work =
      allgather_async(context, torch::tensor({static_cast<std::int64_t>(mine.size())}),
                      {.name = topic + "/counts", .process_set = process_set});
  const TensorWork digests_work =
      allgather_async(context, torch::tensor(digests, torch::kInt64),
                      {.name = topic + "/digests", .process_set = process_set});
  const torch::Tensor all_counts = counts_work.wait();
  const torch::Tensor all_digests = digests_work.wait();
  const std::vector<Values> by_rank = split(values_of(all_digests), values_of(all_counts));

  for (std::size_t place = 1; place < by_rank.size(); ++place) {
    if (by_rank[place].size() != by_rank[0].size()) {
      return fmt::format("rank {} has {} of them, rank {} has {}", ranks[place],
                         by_rank[place].size(), ranks[0], by_rank[0].size());
    }
  }
  for (std::size_t index = 0; index < mine.size(); ++index) {
    std::vector<int> differing;
    for (std::size_t place = 1; place < by_rank.size(); ++place) {
      if (by_rank[place][index] != by_rank[0][index]) differing.push_back(ranks[place]);
    }
    if (!differing.empty()) return describe(mine[index].first, differing, ranks[0]);
  }
  return {};
}

}  // namespace hvd
