#include "gradients/layout_exchange.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <hvd/torch/collectives.hpp>

#include "collectives/operation.hpp"
#include "state/digest.hpp"

namespace hvd::detail {

namespace {

// Gradients of more bytes are not compared. Small gradients differ just as well when the data
// differ.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

// The message begins with two numbers, the digest and its complement. Their maxima over the ranks
// are the greatest digest and the complement of the least one, so one allreduce shows whether all
// digests are equal. One flag for each rank and one layout for each parameter follow.
constexpr std::size_t kDigests = 2;

}  // namespace

LayoutExchange::LayoutExchange(Context& context, std::int32_t process_set, std::size_t parameters)
    : context_(context), process_set_(process_set), mine_(parameters), agreed_(parameters) {}

void LayoutExchange::add(std::size_t parameter, const torch::Tensor& gradient) {
  mine_[parameter] = std::max(mine_[parameter], gradient.is_sparse() ? kSparse : kDense);
  // The host waits for a device to compute a digest, and later steps need none.
  if (was_complete_ || gradient.layout() != torch::kStrided || gradient.nbytes() > kMostBytes)
    return;
  const torch::NoGradGuard no_grad;
  Digest digest;
  digest.add(parameter);
  digest.add_values(gradient);
  digest_ += digest.value();  // a sum does not depend on the order in which gradients arrive
  nonzero_ = nonzero_ || gradient.any().item<bool>();
}

void LayoutExchange::start(const std::string& name) {
  const RankInSet rank = rank_in_set(context_, process_set_);
  constexpr auto kGreatest = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> message(kDigests + static_cast<std::size_t>(rank.size));
  // A rank without gradients sends two numbers that are no complements of each other.
  message[0] = nonzero_ ? static_cast<std::int64_t>(digest_) : kGreatest;
  message[1] = nonzero_ ? ~message[0] : kGreatest;
  message[kDigests + static_cast<std::size_t>(rank.index)] = 1;
  message.insert(message.end(), mine_.begin(), mine_.end());
  digest_ = 0;
  nonzero_ = false;
  exchange_ = allreduce_async(
      torch::tensor(message, torch::kInt64),
      {.name = name, .op = ReduceOp::max, .process_set = process_set_, .context = &context_});
}

bool LayoutExchange::finish() {
  const TensorWork exchange = std::exchange(exchange_, {});
  if (!exchange.valid()) return false;  // none was due, or `start` threw
  const torch::Tensor maxima = exchange.wait();
  const auto* const numbers = maxima.const_data_ptr<std::int64_t>();
  const auto* const ranks = numbers + kDigests;
  const auto* const layouts = numbers + maxima.numel() - agreed_.size();
  const auto senders = std::count(ranks, layouts, 1);
  all_are_equal_ = senders > 1 && numbers[0] == ~numbers[1];
  is_complete_ = senders == layouts - ranks;
  was_complete_ = was_complete_ || is_complete_;
  std::copy(layouts, numbers + maxima.numel(), agreed_.begin());
  mine_ = agreed_;
  return true;
}

}  // namespace hvd::detail
