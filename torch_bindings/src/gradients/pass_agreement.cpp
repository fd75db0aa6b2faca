#include "gradients/pass_agreement.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

#include "state/digest.hpp"

namespace hvd::detail {

namespace {

// A float counts exactly to 2^24. The quotients of scaled numbers are exact enough up to this.
constexpr std::int64_t kModulus = std::int64_t{1} << 20;

// Each rank sends numbers in places of its own: 1, its steps, its pass, and two numbers for each
// digest, which are zeros where there is none. The scales of the reduction cancel out in quotients
// by the first. A rank that has joined sends zeros.
constexpr std::size_t kCorners = 3;
constexpr std::size_t kElements = 5;  // left out when they are never compared
constexpr std::size_t kMostNumbers = 7;

/// Returns 40 bits of the digest as two numbers, the first of which is not 0.
std::pair<std::int64_t, std::int64_t> numbers_of(std::uint64_t digest) {
  constexpr auto kRange = static_cast<std::uint64_t>(kModulus);
  return {static_cast<std::int64_t>(1 + digest % (kRange - 1)),
          static_cast<std::int64_t>(digest / kRange % kRange)};
}

}  // namespace

std::size_t PassAgreement::numbers_of_a_rank() const noexcept {
  return check_every_ > 0 ? kMostNumbers : kElements;
}

std::size_t PassAgreement::length() const noexcept {
  return used_.size() + numbers_of_a_rank() * ranks_.size();
}

void PassAgreement::read_parameters() {
  if (!message_.defined() || std::exchange(has_read_, true)) return;
  if (compares_corners_) {
    Digest digest;
    for (const torch::Tensor& parameter : parameters_) digest.add_corners(parameter);
    corners_ = digest.value();
  }
  if (check_every_ == 0 || unchecked_ + 1 < check_every_) return;
  const torch::NoGradGuard no_grad;
  Digest digest;
  for (const torch::Tensor& parameter : parameters_) digest.add_values(parameter);
  elements_ = digest.value();
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
      sent + used_.size() + numbers_of_a_rank() * static_cast<std::size_t>(at - ranks_.begin());
  own[0] = 1;
  own[1] = static_cast<float>(steps_);
  own[2] = static_cast<float>(pass_);
  const auto put = [own](std::size_t place, std::uint64_t digest) {
    const auto [first, second] = numbers_of(digest);
    own[place] = static_cast<float>(first);
    own[place + 1] = static_cast<float>(second);
  };
  if (compares_corners_) put(kCorners, corners_);
  if (const auto digest = std::exchange(elements_, {})) put(kElements, *digest);
  has_read_ = false;
  exchange_ = allreduce_async_(message_, reduction);
}

std::vector<PassAgreement::Pass> PassAgreement::received() const {
  const float* const sums = message_.const_data_ptr<float>() + used_.size();
  std::vector<Pass> passes;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const float* const numbers = sums + numbers_of_a_rank() * i;
    if (numbers[0] == 0) continue;
    const auto number = [&](std::size_t at) { return std::llround(numbers[at] / numbers[0]); };
    const auto digest = [&](std::size_t at) { return number(at) * kModulus + number(at + 1); };
    passes.push_back({ranks_[i], number(1), number(2), digest(kCorners),
                      check_every_ > 0 ? digest(kElements) : 0});
  }
  return passes;
}

void PassAgreement::finish(std::string_view owner) {
  if (!exchange_.valid()) return;  // one rank, or `start` threw
  std::exchange(exchange_, {}).wait();
  std::copy_n(message_.const_data_ptr<float>(), used_.size(), used_.begin());
  const std::vector<Pass> passes = received();
  const bool compared = std::any_of(passes.begin(), passes.end(),
                                    [](const Pass& each) { return each.parameters != 0; });
  unchecked_ = compared ? 0 : unchecked_ + 1;
  compare_passes(passes, owner);
  compare_digests(passes, &Pass::corners, owner);
  compare_digests(passes, &Pass::parameters, owner);
}

void PassAgreement::compare_passes(const std::vector<Pass>& passes, std::string_view owner) const {
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

/// The digest that most ranks have is right. Without a majority nobody knows which one is right.
/// Ranks that have joined count their reductions differently until the next comparison, so not all
/// ranks may have sent a digest.
void PassAgreement::compare_digests(const std::vector<Pass>& passes, std::int64_t Pass::*digest,
                                    std::string_view owner) const {
  std::map<std::int64_t, std::vector<int>> by_digest;
  std::size_t count = 0;
  for (const Pass& pass : passes) {
    if (pass.*digest == 0) continue;
    by_digest[pass.*digest].push_back(pass.rank);
    ++count;
  }
  if (by_digest.size() < 2) return;
  std::vector<int> wrong;
  for (const auto& [value, ranks] : by_digest) {
    if (2 * ranks.size() <= count) wrong.insert(wrong.end(), ranks.begin(), ranks.end());
  }
  std::sort(wrong.begin(), wrong.end());
  const std::string_view relation =
      wrong.size() == count ? "have different parameters" : "differ from most ranks in parameters";
  throw Error(
      Errc::mismatch,
      fmt::format("{}: rank(s) {} {}. A rank has called backward() or step() more often than the "
                  "others, has stepped with losses of its own (let a closure return "
                  "hvd::allreduce(loss)), has changed its parameters by itself, or its memory is "
                  "faulty. hvd::verify(model) names the parameter",
                  owner, rank_ranges(wrong), relation));
}

}  // namespace hvd::detail
