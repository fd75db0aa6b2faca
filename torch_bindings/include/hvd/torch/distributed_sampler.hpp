// Which examples this rank trains on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

namespace hvd {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< the same on every rank; the order depends on it and on the epoch
  /// Ranks get equally many examples: the last ones are left out, or the first ones come twice.
  bool drop_last = false;
  int rank = -1;  ///< -1: of the default context, like `size`
  int size = -1;
};

/// Deals one order of the data set out to the ranks like cards: rank r gets the elements r,
/// r + size, r + 2·size, … So the ranks' batches k together are the batch k of one process with
/// `size` times the batch size, whatever the number of ranks.
///
/// Copies share their state, because `torch::data::make_data_loader` takes a copy: `set_epoch` on
/// the original takes effect when the loader begins its next pass. One thread at a time; the
/// loader's own workers do not call the sampler.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options = {});

  /// From the next `reset` on: the order of this epoch.
  void set_epoch(std::size_t epoch);
  [[nodiscard]] std::size_t epoch() const;
  /// Examples of this rank in an epoch, the same on every rank.
  [[nodiscard]] std::size_t size() const;
  /// Those already handed out by `next`.
  [[nodiscard]] std::size_t position() const;
  [[nodiscard]] std::size_t dataset_size() const;
  /// Those of this rank, in order, of the epoch that was begun last.
  [[nodiscard]] const std::vector<std::size_t>& indices() const;

  /// Starts an epoch. The first reset after `load` goes on from the saved position instead.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// The next indices into the data set, at most `batch_size`; nothing at the end of the epoch.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Data set size, seed, epoch, position and number of ranks. Any number of ranks may `load` it:
  /// they go on from the same place in the epoch.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Throws Errc::invalid_argument when the saved data set or seed is another.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd
