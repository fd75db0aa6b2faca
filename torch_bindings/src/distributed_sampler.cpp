#include <numeric>

#include <fmt/format.h>
#include <torch/serialize.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/distributed_sampler.hpp>

#include "shuffle.hpp"

namespace hvd {

struct DistributedSampler::State {
  DistributedSamplerOptions options;
  std::size_t dataset_size = 0;
  std::size_t epoch = 0;
  std::size_t position = 0;
  bool resumed = false;
  std::vector<std::size_t> order;  ///< this rank's indices in the epoch that runs

  [[nodiscard]] std::size_t share() const {
    const auto size = static_cast<std::size_t>(options.size);
    return options.drop_last ? dataset_size / size : (dataset_size + size - 1) / size;
  }
  void deal();
};

void DistributedSampler::State::deal() {
  std::vector<std::size_t> all(dataset_size);
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (options.shuffle) shuffle(all, options.seed, epoch);
  order.clear();
  order.reserve(share());
  for (std::size_t card = 0; card < share(); ++card) {
    const std::size_t place =
        card * static_cast<std::size_t>(options.size) + static_cast<std::size_t>(options.rank);
    order.push_back(all[place % dataset_size]);
  }
}

DistributedSampler::DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options)
    : state_(std::make_shared<State>()) {
  if (options.rank < 0) options.rank = rank();
  if (options.size < 0) options.size = hvd::size();
  if (options.size < 1 || options.rank >= options.size) {
    throw Error(Errc::invalid_argument,
                fmt::format("DistributedSampler: rank {} of {} ranks", options.rank, options.size));
  }
  state_->options = options;
  state_->dataset_size = dataset_size;
  state_->deal();
}

void DistributedSampler::set_epoch(std::size_t epoch) { state_->epoch = epoch; }

std::size_t DistributedSampler::epoch() const { return state_->epoch; }

std::size_t DistributedSampler::size() const { return state_->share(); }

std::size_t DistributedSampler::position() const { return state_->position; }

std::size_t DistributedSampler::dataset_size() const { return state_->dataset_size; }

const std::vector<std::size_t>& DistributedSampler::indices() const { return state_->order; }

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) state_->dataset_size = *new_size;
  if (!std::exchange(state_->resumed, false)) state_->position = 0;
  state_->deal();
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  return take_next(state_->order, state_->position, batch_size);
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("dataset_size", static_cast<std::int64_t>(state_->dataset_size));
  archive.write("seed", static_cast<std::int64_t>(state_->options.seed));
  archive.write("epoch", static_cast<std::int64_t>(state_->epoch));
  archive.write("position", static_cast<std::int64_t>(state_->position));
  archive.write("ranks", static_cast<std::int64_t>(state_->options.size));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  const auto read = [&archive](const char* key) {
    c10::IValue value;
    archive.read(key, value);
    return value.toInt();
  };
  State& state = *state_;
  if (static_cast<std::size_t>(read("dataset_size")) != state.dataset_size ||
      static_cast<std::uint64_t>(read("seed")) != state.options.seed) {
    throw Error(Errc::invalid_argument,
                "DistributedSampler: the saved state is of another data set or seed");
  }
  const std::int64_t epoch = read("epoch");
  // Of all ranks together: another number of them goes on from the same place in the epoch, and
  // where it does not come out even, some examples come again.
  c10::IValue ranks;
  const std::int64_t saved_ranks =
      archive.try_read("ranks", ranks) ? ranks.toInt() : state.options.size;
  const std::int64_t dealt = read("position") * saved_ranks;
  if (epoch < 0 || dealt < 0) {
    throw Error(Errc::invalid_argument, "DistributedSampler: the saved state is damaged");
  }
  state.epoch = static_cast<std::size_t>(epoch);
  state.deal();
  state.position =
      std::min(static_cast<std::size_t>(dealt / state.options.size), state.order.size());
  state.resumed = true;
}

}  // namespace hvd
