#include "gradients/pass_agreement.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

namespace {

// A float counts exactly to 2^24. The quotients of scaled numbers are exact enough up to this.
constexpr std::int64_t kModulus = std::int64_t{1} << 20;

// Each rank sends three numbers in places of its own: 1, its steps and its pass. The scales of the
// reduction cancel out in quotients by the first. A rank that has joined sends zeros.
constexpr std::size_t kNumbersOfARank = 3;

}  // namespace

std::size_t PassAgreement::length() const noexcept {
  return used_.size() + kNumbersOfARank * ranks_.size();
}

void PassAgreement::begin(std::int64_t steps, std::int64_t pass) {
  steps_ = steps % kModulus;
  pass_ = pass % kModulus;
  std::fill(used_.begin(), used_.end(), 0.0F);
}

void PassAgreement::start(const AllreduceOptions& reduction) {
  if (!message_.defined()) return;
  auto* const sent = message_.mutable_data_ptr<float>();
  std::fill(std::copy(used_.begin(), used_.end(), sent), sent + length(), 0.0F);
  const auto at = std::find(ranks_.begin(), ranks_.end(), reduction.context->rank());
  float* const own =
      sent + used_.size() + kNumbersOfARank * static_cast<std::size_t>(at - ranks_.begin());
  own[0] = 1;
  own[1] = static_cast<float>(steps_);
  own[2] = static_cast<float>(pass_);
  exchange_ = allreduce_async_(message_, reduction);
}

void PassAgreement::finish(std::string_view owner) {
  if (!exchange_.valid()) return;  // one rank, or `start` threw
  std::exchange(exchange_, {}).wait();
  const auto* const sums = message_.const_data_ptr<float>();
  std::copy_n(sums, used_.size(), used_.begin());
  struct Pass {
    int rank;
    std::int64_t steps;
    std::int64_t pass;
  };
  std::vector<Pass> passes;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const float* const numbers = sums + used_.size() + kNumbersOfARank * i;
    if (numbers[0] == 0) continue;
    passes.push_back(
        {ranks_[i], std::llround(numbers[1] / numbers[0]), std::llround(numbers[2] / numbers[0])});
  }
  const auto other = std::find_if(passes.begin(), passes.end(), [&passes](const Pass& each) {
    return each.steps != passes.front().steps || each.pass != passes.front().pass;
  });
  if (other == passes.end()) return;
  const Pass& first = passes.front();
  const auto words = [&](const Pass& each) {
    if (first.steps == other->steps) return fmt::format("pass {}", each.pass);
    const bool is_ahead = each.steps > std::min(first.steps, other->steps);
    return fmt::format("pass {} of {} step", each.pass, is_ahead ? "its next" : "a");
  };
  throw Error(Errc::mismatch,
              fmt::format("{}: rank {} reduces the gradients of {}, and rank {} those of {}. Every "
                          "rank has to call backward() equally often, and step() after equally "
                          "many passes; put passes that are not to be reduced under no_sync(), and "
                          "let a closure return hvd::allreduce(loss)",
                          owner, first.rank, words(first), other->rank, words(*other)));
}

}  // namespace hvd::detail
