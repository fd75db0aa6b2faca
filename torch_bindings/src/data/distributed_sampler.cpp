#include <algorithm>
#include <numeric>
#include <utility>

#include <torch/serialize.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/distributed_sampler.hpp>

#include "data/sample_order.hpp"

namespace hvd {

using namespace detail;

struct DistributedSampler::State {
  DistributedSamplerOptions options;
  std::size_t dataset_size = 0;
  std::size_t epoch = 0;
  std::size_t position = 0;
  std::vector<std::size_t> order;  ///< this rank's indices in the running epoch
  PassOfEpoch pass;
  bool resumed = false;  ///< `position` was loaded, and neither `next` nor `reset` was called since

  [[nodiscard]] std::size_t shard_size(std::int64_t ranks) const {
    const auto size = static_cast<std::size_t>(ranks);
    return options.drop_last ? dataset_size / size : (dataset_size + size - 1) / size;
  }
  void begin_pass();
};

void DistributedSampler::State::begin_pass() {
  std::vector<std::size_t> all(dataset_size);
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (options.shuffle) shuffle(all, options.seed, epoch);
  order = shard_of(all, options.rank, options.size, shard_size(options.size));
  pass = {epoch, false};
}

DistributedSampler::DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options)
    : state_(std::make_shared<State>()) {
  resolve_rank(options.rank, options.size, "DistributedSampler");
  state_->options = options;
  state_->dataset_size = dataset_size;
  state_->begin_pass();
}

void DistributedSampler::set_epoch(std::size_t epoch) {
  state_->epoch = epoch;
  state_->pass.begun = false;
}

std::size_t DistributedSampler::epoch() const { return state_->epoch; }

std::size_t DistributedSampler::size() const { return state_->shard_size(state_->options.size); }

std::size_t DistributedSampler::position() const { return state_->position; }

std::size_t DistributedSampler::dataset_size() const { return state_->dataset_size; }

const std::vector<std::size_t>& DistributedSampler::indices() const { return state_->order; }

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  State& state = *state_;
  // A loaded position is one in the order of the saved size.
  if (new_size && *new_size != state.dataset_size) state.resumed = false;
  if (new_size) state.dataset_size = *new_size;
  if (state.pass.is_over(state.epoch)) ++state.epoch;
  const bool continues = std::exchange(state.resumed, false) && state.epoch == state.pass.epoch;
  if (!continues) state.position = 0;
  state.begin_pass();
  state.pass.begun = true;
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  state_->pass.begun = true;
  state_->resumed = false;
  return take_next(state_->order, state_->position, batch_size);
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const State& state = *state_;
  // After `set_epoch` the position is still that of the pass before.
  const bool in_pass = state.pass.epoch == state.epoch && (state.pass.begun || state.resumed);
  write_sampler(archive, state.dataset_size, state.options.seed, state.epoch);
  archive.write("position", static_cast<std::int64_t>(in_pass ? state.position : 0));
  archive.write("ranks", static_cast<std::int64_t>(state.options.size));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  State& state = *state_;
  const std::size_t epoch =
      read_sampler(archive, state.dataset_size, state.options.seed, "DistributedSampler");
  // The saved position counts the examples of all ranks together, so another number of ranks can
  // continue from the same point of the epoch. If it does not divide the position, a few examples
  // are used again.
  c10::IValue ranks;
  const std::int64_t saved_ranks =
      archive.try_read("ranks", ranks) ? ranks.toInt() : state.options.size;
  const std::int64_t saved_position = read_integer(archive, "position");
  if (saved_ranks < 1 || saved_position < 0) {
    throw Error(Errc::invalid_argument, "DistributedSampler: the saved state is damaged");
  }
  // After the last batch nothing is left to continue with, so the next epoch is to begin.
  const bool is_over = saved_position >= static_cast<std::int64_t>(state.shard_size(saved_ranks));
  state.epoch = is_over ? epoch + 1 : epoch;
  state.begin_pass();
  const std::int64_t returned = is_over ? 0 : saved_position * saved_ranks;
  state.position =
      std::min(static_cast<std::size_t>(returned / state.options.size), state.order.size());
  state.resumed = true;
}

}  // namespace hvd
