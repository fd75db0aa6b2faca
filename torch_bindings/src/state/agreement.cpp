#include "state/agreement.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/object.hpp>

#include "collectives/first_error.hpp"

namespace hvd::detail {

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

std::string difference_text(const std::string& name, const std::vector<int>& ranks, int first) {
  return ranks.size() == 1
             ? fmt::format("{}: rank {} differs from rank {}", name, ranks.front(), first)
             : fmt::format("{}: ranks {} differ from rank {}", name, rank_ranges(ranks), first);
}

}  // namespace

std::string first_difference(Context& context, const std::vector<NamedDigest>& mine,
                             const std::string& topic, std::int32_t process_set) {
  const std::vector<int> ranks = context.ranks_of(process_set);
  std::vector<std::int64_t> digests;
  digests.reserve(mine.size());
  for (const auto& [name, digest] : mine) digests.push_back(static_cast<std::int64_t>(digest));

  const TensorWork counts_work =
      allgather_async(torch::tensor({static_cast<std::int64_t>(mine.size())}),
                      {.name = topic + "/counts", .process_set = process_set, .context = &context});
  const TensorWork digests_work = allgather_async(
      torch::tensor(digests, torch::kInt64),
      {.name = topic + "/digests", .process_set = process_set, .context = &context});
  const torch::Tensor all_counts = counts_work.wait();
  const torch::Tensor all_digests = digests_work.wait();
  const std::vector<Values> by_rank = split(values_of(all_digests), values_of(all_counts));

  // A value that differs says more than different numbers of values, so the values that all ranks
  // have are compared first.
  std::size_t common = mine.size();
  for (const Values& values : by_rank) common = std::min(common, values.size());
  for (std::size_t index = 0; index < common; ++index) {
    std::vector<int> differing;
    for (std::size_t i = 1; i < by_rank.size(); ++i) {
      if (by_rank[i][index] != by_rank[0][index]) differing.push_back(ranks[i]);
    }
    if (!differing.empty()) return difference_text(mine[index].first, differing, ranks[0]);
  }
  for (std::size_t i = 1; i < by_rank.size(); ++i) {
    if (by_rank[i].size() != by_rank[0].size()) {
      return fmt::format("rank {} has {} of them, rank {} has {}", ranks[i], by_rank[i].size(),
                         ranks[0], by_rank[0].size());
    }
  }
  return {};
}

std::int64_t agree_on_instance(Context& context, const std::string& topic,
                               std::int32_t process_set) {
  // The first rank of the set decides. Its count of submitted operations grows with every call of
  // this function, so that it never chooses a number twice.
  const auto submitted = static_cast<std::int64_t>(context.stats().submitted);
  return broadcast(torch::tensor({submitted}, torch::kInt64), context.ranks_of(process_set).front(),
                   {.name = topic + "/instance", .process_set = process_set, .context = &context})
      .item<std::int64_t>();
}

void broadcast_tensors(Context& context, const NamedTensors& tensors, const std::string& prefix,
                       int root, std::int32_t process_set) {
  FirstError error;
  std::vector<TensorWork> works;
  error.keep([&] {
    for (const auto& [name, tensor] : tensors.items()) {
      works.push_back(broadcast_async_(
          tensor, root, {.name = prefix + name, .process_set = process_set, .context = &context}));
    }
  });
  for (const TensorWork& work : works) error.keep([&work] { work.wait(); });
  error.take();
}

Error as_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const c10::Error& error) {
    return Error(Errc::invalid_argument, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Error(Errc::invalid_argument, error.what());
  }
}

void Outcome::attempt(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception&) {
    error_ = as_error(std::current_exception());
  }
}

void Outcome::share(Context& context) const {
  WireWriter writer;
  writer.u8(error_ ? 1 : 0);
  if (error_) {
    writer.u8(static_cast<std::uint8_t>(error_->code()));
    writer.text(error_->what());
  }
  const Bytes received =
      broadcast_object(writer.take(), 0, {.name = "checkpoint/outcome", .context = &context});
  WireReader reader(received, "checkpoint outcome");
  if (reader.u8() == 0) return;
  const auto code = static_cast<Errc>(reader.u8());
  throw Error(code, reader.text(kLongestReport));
}

std::string on_rank_0(Context& context, const std::function<std::string()>& function) {
  Outcome outcome;
  std::string result;
  if (context.rank() == 0) outcome.attempt([&] { result = function(); });
  outcome.share(context);
  return broadcast_object(result, 0, {.name = "checkpoint/answer", .context = &context});
}

}  // namespace hvd::detail
