#include "first_step.hpp"

#include <algorithm>
#include <limits>

#include <hvd/torch/collectives.hpp>

#include "digest.hpp"
#include "tensor_traits.hpp"

namespace hvd {

namespace {

// Larger gradients are not looked at: the small ones of a model depend on its data as well.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

// Before the ranks' marks and the flags: the digest, and its complement, whose greatest is that of
// the least digest.
constexpr std::size_t kDigests = 2;

}  // namespace

FirstStep::FirstStep(Context& context, std::int32_t process_set, std::size_t parameters)
    : context_(context), process_set_(process_set), sparse_(parameters) {}

void FirstStep::saw(std::size_t parameter, const torch::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  if (gradient.is_sparse()) {
    sparse_[parameter] = 1;
    return;
  }
  if (gradient.layout() != torch::kStrided || gradient.nbytes() > kMostBytes) return;
  const torch::Tensor host = plain_alias(gradient).resolve_neg().cpu().contiguous();
  Digest digest;
  digest.add(parameter);
  digest.add_elements({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()},
                      host.element_size());
  digest_ += digest.value();  // in whatever order they come
  nonzero_ = nonzero_ || host.any().item<bool>();
}

void FirstStep::exchange(const std::string& name) {
  const torch::NoGradGuard no_grad;
  const std::vector<int> ranks = context_.ranks_of(process_set_);
  const auto place = static_cast<std::size_t>(
      std::lower_bound(ranks.begin(), ranks.end(), context_.rank()) - ranks.begin());
  constexpr auto kGreatest = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> told(kDigests + ranks.size());
  // With nothing to compare it differs from every other.
  told[0] = nonzero_ ? static_cast<std::int64_t>(digest_) : kGreatest;
  told[1] = nonzero_ ? ~told[0] : kGreatest;
  told[kDigests + place] = 1;
  told.insert(told.end(), sparse_.begin(), sparse_.end());
  const torch::Tensor all =
      allreduce(context_, torch::tensor(told, torch::kInt64),
                {.name = name, .op = ReduceOp::max, .process_set = process_set_});

  const auto* const numbers = all.const_data_ptr<std::int64_t>();
  const auto* const marks = numbers + kDigests;
  const auto told_by = std::count(marks, marks + ranks.size(), 1);
  all_are_equal_ = told_by > 1 && numbers[0] == ~numbers[1];
  std::copy(marks + ranks.size(), numbers + all.numel(), sparse_.begin());
}

bool FirstStep::is_sparse(std::size_t parameter) const { return sparse_[parameter] == 1; }

}  // namespace hvd
