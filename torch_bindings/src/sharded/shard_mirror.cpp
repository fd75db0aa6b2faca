#include "sharded/shard_mirror.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <hvd/torch/collectives.hpp>
#include <hvd/torch/object.hpp>

#include "sharded/state_fields.hpp"

namespace hvd::detail {
namespace {

using Piece = HeldDivision::Piece;
using ParamState = torch::optim::OptimizerParamState;

/// The shards of an earlier division, which their sources send to all ranks.
class ShardExchange {
 public:
  ShardExchange(Context& context, const HeldDivision* held, const std::vector<ShardSource>& shards)
      : context_(context), held_(held), shards_(shards), order_(shards.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return shards[a].rank < shards[b].rank; });
  }

  /// Returns the numbers in the state of a bucket, which are the same in all of its shards.
  [[nodiscard]] torch::Tensor numbers(std::size_t bucket,
                                      const torch::optim::Optimizer& optimizer) const {
    const int root = shards_.front().rank;
    torch::Tensor numbers = torch::empty({0}, torch::kFloat64);
    if (context_.rank() == root) {
      const Piece& piece = piece_of(bucket, 0);
      if (piece.state) numbers = numbers_of(state_fields(optimizer, *piece.state));
    }
    broadcast_object_(numbers, root, {.context = &context_});
    return numbers;
  }

  /// Returns a whole bucket of what `field` returns of a piece.
  template <class Field>
  [[nodiscard]] torch::Tensor whole(std::size_t number, const ShardBucket& bucket,
                                    const Field& field) const {
    std::vector<torch::Tensor> mine{torch::empty({0}, bucket.shard().options())};
    for (const std::size_t shard : order_) {
      if (shards_[shard].rank == context_.rank()) mine.push_back(field(piece_of(number, shard)));
    }
    const torch::Tensor gathered = allgather(torch::cat(mine), {.context = &context_});
    torch::Tensor whole = torch::empty_like(gathered);
    std::int64_t next = 0;
    for (const std::size_t shard : order_) {
      const ShardRange range =
          shard_range(bucket.elements(), static_cast<std::int64_t>(shard), std::ssize(shards_));
      whole.narrow(0, range.begin, range.count).copy_(gathered.narrow(0, next, range.count));
      next += range.count;
    }
    return whole;
  }

 private:
  [[nodiscard]] const Piece& piece_of(std::size_t bucket, std::size_t shard) const {
    return held_->buckets.at(bucket).at(shards_[shard].is_mirror ? 1 : 0);
  }

  Context& context_;
  const HeldDivision* held_;  ///< null on ranks that have none
  const std::vector<ShardSource>& shards_;
  std::vector<std::size_t> order_;  ///< the shards in the order in which ranks send them
};

}  // namespace

void ShardMirror::attach(std::deque<ShardBucket>& buckets, const RankInSet& rank) {
  buckets_ = &buckets;
  current_ = {.rank = rank.index, .ranks = rank.size};
}

void ShardMirror::detach() noexcept {
  // A step that could not be made leaves parts of which some have changed.
  if (buckets_ != nullptr && current_.number != 0 && !count_.underway) {
    try {
      hold();
    } catch (...) {
      held_
          .pop_back();  // the program has moved a parameter, which its next step would have refused
    }
  }
  buckets_ = nullptr;
  current_ = {};
}

void ShardMirror::hold() {
  const torch::NoGradGuard no_grad;
  HeldDivision& held = held_.emplace_back();
  held.division = current_;
  for (ShardBucket& bucket : *buckets_) {
    if (gathered_) bucket.update_parts();
    std::vector<Piece>& pieces = held.buckets.emplace_back();
    for (const ShardPart& part : bucket.parts()) {
      Piece& piece = pieces.emplace_back();
      piece.values = part.values;
      const auto state = base_.state().find(part.values.unsafeGetTensorImpl());
      if (state != base_.state().end()) piece.state = std::move(state->second);
    }
    if (current_.pending == 0) continue;
    const std::vector<torch::Tensor> gradients = bucket.gradients();
    for (std::size_t part = 0; part < pieces.size(); ++part) {
      pieces[part].gradient = gradients[part];
    }
  }
}

void ShardMirror::decide(const std::function<void()>& vote) {
  current_.pending = 1;
  vote();
  held_.clear();  // all ranks have the division in which they step now
  current_.pending = 0;
  changed();
  gathered_ = false;
}

void ShardMirror::changed() noexcept {
  ++current_.steps;
  ++count_.completed;
}

Divisions ShardMirror::held() const {
  Divisions all;
  for (const HeldDivision& one : held_) all.push_back(one.division);
  return all;
}

void ShardMirror::go_on_with(std::int64_t division, bool makes_pending) {
  std::erase_if(held_, [&](const HeldDivision& one) { return one.division.number != division; });
  for (HeldDivision& held : held_) {
    if (held.division.pending != 0 && makes_pending) make_pending(held);
    held.division.pending = 0;
    for (auto& pieces : held.buckets) {
      for (Piece& piece : pieces) piece.gradient.reset();
    }
  }
}

/// Gives the optimizer the parts of the division as parameters, for one step.
void ShardMirror::make_pending(HeldDivision& held) {
  const torch::NoGradGuard no_grad;
  const auto exchange_parameters = [&](std::vector<std::vector<torch::Tensor>> with) {
    auto& groups = base_.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) std::swap(groups[i].params(), with[i]);
    return with;
  };
  std::vector<std::vector<torch::Tensor>> parameters(base_.param_groups().size());
  std::vector<std::vector<torch::Tensor>> before;  // by bucket, by part
  auto state = std::exchange(base_.state(), {});
  for (std::size_t i = 0; i < held.buckets.size(); ++i) {
    before.emplace_back();
    for (Piece& piece : held.buckets[i]) {
      before.back().push_back(piece.values.clone());
      piece.values.mutable_grad() = piece.gradient;
      parameters[(*buckets_)[i].group()].push_back(piece.values);
      if (piece.state) base_.state()[piece.values.unsafeGetTensorImpl()] = std::move(piece.state);
    }
  }
  parameters = exchange_parameters(std::move(parameters));
  step_();
  exchange_parameters(std::move(parameters));
  for (std::size_t i = 0; i < held.buckets.size(); ++i) {
    for (std::size_t part = 0; part < held.buckets[i].size(); ++part) {
      Piece& piece = held.buckets[i][part];
      piece.values.mutable_grad().reset();
      const std::int64_t index = held.division.rank - static_cast<std::int64_t>(part);
      const ShardRange range =
          shard_range((*buckets_)[i].elements(),
                      (index + held.division.ranks) % held.division.ranks, held.division.ranks);
      (*buckets_)[i].keep_frozen({range.begin, piece.values}, before[i][part]);
      const auto found = base_.state().find(piece.values.unsafeGetTensorImpl());
      if (found != base_.state().end()) piece.state = std::move(found->second);
    }
  }
  base_.state() = std::move(state);
  ++held.division.steps;
  ++count_.completed;
}

void ShardMirror::assemble(Context& context, const std::vector<ShardSource>& shards) {
  const torch::NoGradGuard no_grad;
  const ShardExchange exchange(context, held_.empty() ? nullptr : &held_.front(), shards);
  for (std::size_t number = 0; number < buckets_->size(); ++number) {
    ShardBucket& bucket = (*buckets_)[number];
    bucket.set_values(
        exchange.whole(number, bucket, [](const Piece& piece) { return piece.values; }));
    const torch::Tensor numbers = exchange.numbers(number, base_);
    if (numbers.numel() == 0) continue;  // the state has not begun
    std::vector<bool> present;
    std::vector<StateFields> fields;
    for (const ShardPart& part : bucket.parts()) {
      auto& state = base_.state()[part.values.unsafeGetTensorImpl()];
      state = make_state(base_);
      fields.push_back(state_fields(base_, *state));
      present = set_numbers(fields.back(), numbers);
    }
    for (std::size_t field = 0; field < present.size(); ++field) {
      if (!present[field]) continue;
      const torch::Tensor whole = exchange.whole(number, bucket, [&](const Piece& piece) {
        return *state_fields(base_, *piece.state).tensors[field];
      });
      for (std::size_t i = 0; i < fields.size(); ++i) {
        const ShardPart& part = bucket.parts()[i];
        *fields[i].tensors[field] = whole.narrow(0, part.begin, part.values.numel()).clone();
      }
    }
  }
}

void ShardMirror::begin(std::int64_t division) noexcept {
  current_.number = division;
  current_.steps = 0;
  current_.pending = 0;
  gathered_ = true;
}

}  // namespace hvd::detail
