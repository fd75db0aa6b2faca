// Chooses the examples that this rank trains on.
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
  /// Ranks get equally many examples. When the number of ranks does not divide that of the
  /// examples, the last examples are left out, or, by default, the first examples are used twice.
  bool drop_last = false;
  int rank = -1;  ///< -1: the rank of the default context; -1 for `size` means its size
  int size = -1;
};

/// All ranks order the data set alike, and rank r gets the elements r, r + size, r + 2·size, … of
/// that order. So the k-th batches of all ranks together are the k-th batch of one process with
/// `size` times the batch size, for any number of ranks.
///
/// Each pass over the data is an epoch with another order, as with LibTorch's RandomSampler:
/// `reset()`, which a loader calls when it begins a pass, begins the next epoch.
///
/// Copies share their state, because `torch::data::make_data_loader` takes a copy: `set_epoch` on
/// the original takes effect when the loader begins its next pass. One thread at a time may use it;
/// the loader's own workers do not call the sampler.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options = {});

  /// The next `reset` begins this epoch. Programs need it only to repeat or to skip epochs.
  void set_epoch(std::size_t epoch);
  [[nodiscard]] std::size_t epoch() const;
  /// Returns the number of examples of this rank in an epoch, which is the same on every rank.
  [[nodiscard]] std::size_t size() const;
  /// Returns the number of examples that `next` has returned.
  [[nodiscard]] std::size_t position() const;
  [[nodiscard]] std::size_t dataset_size() const;
  /// Returns the examples of this rank, in order, in the epoch that was begun last.
  [[nodiscard]] const std::vector<std::size_t>& indices() const;

  /// Begins the next epoch. The first reset after construction begins epoch 0, unless `next` was
  /// called before. The first reset after `set_epoch` begins that epoch, and the first one after
  /// `load` continues the saved epoch from the saved position, unless no example is left there. If
  /// that reset gets another size than the saved one, the saved epoch begins anew.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// Returns the next indices into the data set, at most `batch_size`, or nothing at the end of the
  /// epoch.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Saves data set size, seed, epoch, position and number of ranks. Any number of ranks may load
  /// it, and they continue from the same point of the epoch.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Throws Errc::invalid_argument when the saved data set size or seed is another one.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd
