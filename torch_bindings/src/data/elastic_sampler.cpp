#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <torch/serialize.h>

#include <hvd/core/internal/wire.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/elastic.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/elastic_sampler.hpp>

#include "data/sample_order.hpp"
#include "data/sampler_progress.hpp"
#include "state/agreement.hpp"

namespace hvd {

using namespace detail;

struct ElasticSampler::State {
  /// What the ranks of a pass train on.
  struct Deal {
    std::uint64_t number = 0;  ///< grows with each pass
    std::size_t epoch = 0;
    std::size_t ranks = 1;
    std::vector<std::size_t> left;  ///< the examples of all ranks, ascending
  };

  ElasticSamplerOptions options;
  std::size_t dataset_size = 0;
  std::size_t epoch = 0;
  std::vector<bool> recorded;  ///< for each example
  Deal deal;                   ///< of the running pass
  Deal marked;  ///< of the pass in which `SamplerProgress` took its last mark, if that is over
  std::vector<std::size_t> order;  ///< this rank's indices in the running pass
  std::size_t returned = 0;        ///< how many of `order` `next` has returned
  std::size_t trained = 0;         ///< how many of `order` are recorded
  // These are used only with a global batch.
  std::vector<std::size_t> order_of_all;  ///< the indices of all ranks
  std::size_t steps_returned = 0;
  std::size_t steps_trained = 0;
  std::uint64_t last_mark = 0;  ///< the number of the pass in which the last mark was taken
  bool nothing_left_is_a_pass = false;
  std::function<void()> on_record;
  PassOfEpoch pass;

  void begin_epoch(std::size_t number);
  void begin_pass();
  [[nodiscard]] std::span<const std::size_t> indices_of_step(std::size_t step) const;
  [[nodiscard]] std::vector<std::size_t> share_of_step(std::size_t step) const;
  void record(std::size_t index) { recorded[index] = true; }
  /// Returns the examples of a deal in the order in which the ranks take them in turn.
  [[nodiscard]] std::vector<std::size_t> shuffled(const Deal& one) const {
    std::vector<std::size_t> all = one.left;
    if (!options.shuffle) return all;
    if (options.global_batch == 0) {
      shuffle(all, options.seed, one.epoch);
      return all;
    }
    // The rest of an epoch keeps the order that it had before the ranks have changed.
    std::vector<bool> is_left(dataset_size, false);
    for (const std::size_t index : one.left) is_left[index] = true;
    all.resize(dataset_size);
    std::iota(all.begin(), all.end(), std::size_t{0});
    shuffle(all, options.seed, one.epoch);
    std::erase_if(all, [&is_left](std::size_t index) { return !is_left[index]; });
    return all;
  }
  /// Returns how many examples of its own, or steps, this rank has recorded.
  [[nodiscard]] std::size_t count_of_records() const noexcept {
    return options.global_batch > 0 ? steps_trained : trained;
  }
  /// Returns for each example whether any rank has recorded it, when this one has recorded `count`
  /// in that pass, and the others as many.
  [[nodiscard]] std::vector<bool> recorded_by_all(const Deal& one, std::size_t count) const {
    std::vector<bool> by_all(dataset_size, true);
    for (const std::size_t index : one.left) by_all[index] = false;
    const std::vector<std::size_t> all = shuffled(one);
    const std::size_t each = options.global_batch > 0 ? options.global_batch : one.ranks;
    const std::size_t used = std::min(count * each, all.size());
    for (std::size_t i = 0; i < used; ++i) by_all[all[i]] = true;
    return by_all;
  }
};

void ElasticSampler::State::begin_epoch(std::size_t number) {
  epoch = number;
  recorded.assign(dataset_size, false);
}

void ElasticSampler::State::begin_pass() {
  const std::uint64_t number = deal.number;
  if (number == last_mark) marked = std::move(deal);
  const auto size = static_cast<std::size_t>(options.size);
  deal = {.number = number + 1, .epoch = epoch, .ranks = size, .left = {}};
  for (std::size_t index = 0; index < dataset_size; ++index) {
    if (!recorded[index]) deal.left.push_back(index);
  }
  std::vector<std::size_t> all = shuffled(deal);
  returned = 0;
  trained = 0;
  steps_returned = 0;
  steps_trained = 0;
  if (options.global_batch > 0) {
    order_of_all = std::move(all);
    order.clear();
    for (std::size_t step = 0; !indices_of_step(step).empty(); ++step) {
      const std::vector<std::size_t> share = share_of_step(step);
      order.insert(order.end(), share.begin(), share.end());
    }
  } else {
    order = shard_of(all, options.rank, options.size, (all.size() + size - 1) / size);
  }
  pass = {epoch, false};
}

/// Returns the examples of all ranks in a step of the running pass, or nothing after its end.
std::span<const std::size_t> ElasticSampler::State::indices_of_step(std::size_t step) const {
  const std::size_t begin = std::min(step * options.global_batch, order_of_all.size());
  const std::size_t count = std::min(options.global_batch, order_of_all.size() - begin);
  return std::span(order_of_all).subspan(begin, count);
}

std::vector<std::size_t> ElasticSampler::State::share_of_step(std::size_t step) const {
  const auto all = indices_of_step(step);
  if (options.shards > 0) return {all.begin(), all.end()};
  std::vector<std::size_t> share;
  for (auto i = static_cast<std::size_t>(options.rank); i < all.size();
       i += static_cast<std::size_t>(options.size)) {
    share.push_back(all[i]);
  }
  return share;
}

ElasticSampler::ElasticSampler(std::size_t dataset_size, const ElasticSamplerOptions& options)
    : state_(std::make_shared<State>()) {
  if (options.shards < 0 ||
      (options.shards > 0 && static_cast<std::size_t>(options.shards) > options.global_batch)) {
    throw Error(Errc::invalid_argument,
                fmt::format("ElasticSampler: a global batch of {} examples cannot be divided into "
                            "{} shards",
                            options.global_batch, options.shards));
  }
  state_->options = options;
  if (options.rank < 0 && elastic::active() && !is_initialized()) {
    state_->options.rank = 0;  // until `elastic_run` has made ranks
    state_->options.size = 1;
  }
  resolve_rank(state_->options.rank, state_->options.size, "ElasticSampler");
  state_->dataset_size = dataset_size;
  state_->recorded.assign(dataset_size, false);
  state_->begin_pass();
}

void ElasticSampler::set_epoch(std::size_t epoch) {
  state_->begin_epoch(epoch);
  state_->pass.begun = false;
}

std::size_t ElasticSampler::epoch() const { return state_->epoch; }

std::size_t ElasticSampler::size() const { return state_->order.size(); }

std::size_t ElasticSampler::dataset_size() const { return state_->dataset_size; }

const ElasticSamplerOptions& ElasticSampler::options() const { return state_->options; }

const std::vector<std::size_t>& ElasticSampler::indices() const { return state_->order; }

const std::vector<std::size_t>& ElasticSampler::remaining() const { return state_->deal.left; }

std::vector<std::size_t> ElasticSampler::recorded() const {
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < state_->dataset_size; ++index) {
    if (state_->recorded[index]) indices.push_back(index);
  }
  return indices;
}

void ElasticSampler::record_batch(std::size_t batch_size) {
  State& state = *state_;
  if (state.options.global_batch > 0) {
    for (const std::size_t index : state.indices_of_step(state.steps_trained)) state.record(index);
    ++state.steps_trained;
    if (state.on_record) state.on_record();
    return;
  }
  const std::size_t end = std::min(state.trained + batch_size, state.order.size());
  for (; state.trained < end; ++state.trained) state.record(state.order[state.trained]);
  if (state.on_record) state.on_record();
}

void ElasticSampler::synchronize(Context& context) {
  State& state = *state_;
  const std::string difference = first_difference(
      context,
      {{"data set size", state.dataset_size}, {"seed", state.options.seed}, {"epoch", state.epoch}},
      "elastic_sampler");
  if (!difference.empty()) {
    throw Error(Errc::mismatch, fmt::format("ElasticSampler: {}", difference));
  }
  torch::Tensor flags = torch::zeros({static_cast<std::int64_t>(state.dataset_size)}, torch::kBool);
  auto* const flag = flags.data_ptr<bool>();
  for (std::size_t index = 0; index < state.dataset_size; ++index) {
    flag[index] = state.recorded[index];
  }
  allreduce_(flags, {.name = "elastic_sampler/record", .op = ReduceOp::max, .context = &context});
  for (std::size_t index = 0; index < state.dataset_size; ++index) {
    state.recorded[index] = flag[index];
  }
  state.options.rank = context.rank();
  state.options.size = context.size();
  state.pass.begun = false;
}

void ElasticSampler::reset(std::optional<std::size_t> new_size) {
  State& state = *state_;
  if (new_size && *new_size != state.dataset_size) {
    state.dataset_size = *new_size;
    state.recorded.resize(*new_size, false);
  }
  const bool nothing_is_left =
      state.dataset_size > 0 && !std::exchange(state.nothing_left_is_a_pass, false) &&
      std::find(state.recorded.begin(), state.recorded.end(), false) == state.recorded.end();
  if (state.pass.is_over(state.epoch) || nothing_is_left) state.begin_epoch(state.epoch + 1);
  state.begin_pass();
  state.pass.begun = true;
}

std::optional<std::vector<std::size_t>> ElasticSampler::next(std::size_t batch_size) {
  state_->pass.begun = true;
  if (state_->options.global_batch > 0) {
    if (state_->indices_of_step(state_->steps_returned).empty()) return std::nullopt;
    return state_->share_of_step(state_->steps_returned++);
  }
  return take_next(state_->order, state_->returned, batch_size);
}

void ElasticSampler::save(torch::serialize::OutputArchive& archive) const {
  const State& state = *state_;
  // Only rank 0 writes a checkpoint. With an `ElasticState` all ranks have recorded equally many
  // examples, so it knows which ones the others have recorded in the pass. Without one the program
  // has called `synchronize`.
  const bool in_pass = state.pass.begun && state.pass.epoch == state.epoch;
  const std::vector<bool> known = state.on_record && in_pass
                                      ? state.recorded_by_all(state.deal, state.count_of_records())
                                      : state.recorded;
  std::vector<std::int64_t> indices;
  for (std::size_t index = 0; index < state.dataset_size; ++index) {
    if (known[index]) indices.push_back(static_cast<std::int64_t>(index));
  }
  write_sampler(archive, state.dataset_size, state.options.seed, state.epoch);
  archive.write("recorded", torch::tensor(indices, torch::kInt64), /*is_buffer=*/true);
}

void ElasticSampler::load(torch::serialize::InputArchive& archive) {
  State& state = *state_;
  const std::size_t epoch =
      read_sampler(archive, state.dataset_size, state.options.seed, "ElasticSampler");
  torch::Tensor indices;
  archive.read("recorded", indices, /*is_buffer=*/true);
  indices = indices.to(torch::kInt64).contiguous();
  const auto* const first = indices.const_data_ptr<std::int64_t>();
  const auto* const end = first + indices.numel();
  if (std::any_of(first, end, [&state](std::int64_t index) {
        return static_cast<std::size_t>(index) >= state.dataset_size;
      })) {
    throw Error(Errc::invalid_argument, "ElasticSampler: a saved index is not of the data set");
  }
  set_epoch(epoch);
  for (const auto* index = first; index != end; ++index) {
    state.record(static_cast<std::size_t>(*index));
  }
  state.begin_pass();
}

void SamplerProgress::on_record(ElasticSampler& sampler, std::function<void()> function) {
  sampler.state_->on_record = std::move(function);
}

SamplerMark SamplerProgress::mark(const ElasticSampler& sampler) {
  ElasticSampler::State& state = *sampler.state_;
  state.last_mark = state.deal.number;
  return {state.deal.number, state.count_of_records()};
}

Bytes SamplerProgress::now(const ElasticSampler& sampler) {
  return at(sampler, {sampler.state_->deal.number, sampler.state_->count_of_records()});
}

Bytes SamplerProgress::at(const ElasticSampler& sampler, const SamplerMark& mark) {
  const ElasticSampler::State& state = *sampler.state_;
  const auto& deal = mark.pass == state.deal.number ? state.deal : state.marked;
  const std::vector<bool> recorded = state.recorded_by_all(deal, mark.trained);
  WireWriter writer;
  writer.u64(state.dataset_size);
  writer.u64(state.options.seed);
  writer.u64(deal.epoch);
  constexpr std::size_t kBits = 8;
  for (std::size_t first = 0; first < recorded.size(); first += kBits) {
    std::uint8_t byte = 0;
    for (std::size_t i = first; i < std::min(first + kBits, recorded.size()); ++i) {
      byte = static_cast<std::uint8_t>(byte | (recorded[i] ? 1U << (i - first) : 0U));
    }
    writer.u8(byte);
  }
  return writer.take();
}

void SamplerProgress::go_on(ElasticSampler& sampler, const Bytes& progress,
                            const Context& context) {
  ElasticSampler::State& state = *sampler.state_;
  WireReader reader(progress, "progress of a sampler");
  const std::uint64_t size = reader.u64();
  if (size != state.dataset_size || reader.u64() != state.options.seed) {
    throw Error(Errc::mismatch, "ElasticSampler: another rank has another data set or seed");
  }
  state.begin_epoch(reader.u64());
  constexpr std::size_t kBits = 8;
  std::uint8_t byte = 0;
  for (std::size_t i = 0; i < state.dataset_size; ++i) {
    if (i % kBits == 0) byte = reader.u8();
    state.recorded[i] = (byte >> (i % kBits) & 1U) != 0;
  }
  reader.finish();
  state.options.rank = context.rank();
  state.options.size = context.size();
  state.begin_pass();
  state.pass.begun = false;
  state.nothing_left_is_a_pass = state.dataset_size > 0 && state.deal.left.empty();
}

}  // namespace hvd
