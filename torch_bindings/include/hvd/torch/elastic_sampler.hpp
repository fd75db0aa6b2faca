// Which examples this rank trains on, when the number of ranks may change within an epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

#include <hvd/core/context.hpp>

namespace hvd {

struct ElasticSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< the same on every rank
  int rank = -1;           ///< -1: of the default context, like `size`
  int size = -1;
};

/// Deals the examples of an epoch that have not been trained on yet out to the ranks, like cards.
/// The training loop records what it has trained on; after a change of the ranks, `synchronize`
/// unites the records, and the rest of the epoch is dealt anew: no example is lost, and those whose
/// recording was lost with a rank come again. Ranks get equally many examples, the first ones
/// twice where that does not come out.
///
/// Copies share their state (`make_data_loader` takes a copy). One thread at a time.
class ElasticSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit ElasticSampler(std::size_t dataset_size, const ElasticSamplerOptions& options = {});

  /// Begins an epoch: nothing of it is recorded. In effect from the next `reset` on.
  void set_epoch(std::size_t epoch);
  [[nodiscard]] std::size_t epoch() const;
  /// Examples of this rank in the pass that was begun last.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t dataset_size() const;
  /// Those of this rank, in order, of the pass that was begun last.
  [[nodiscard]] const std::vector<std::size_t>& indices() const;
  /// Those that the pass that was begun last deals out to all ranks, ascending.
  [[nodiscard]] const std::vector<std::size_t>& remaining() const;
  /// What this rank knows to have been trained on in this epoch, ascending.
  [[nodiscard]] std::vector<std::size_t> recorded() const;

  /// The next `batch_size` examples of this rank, in the order they were handed out, have been
  /// trained on. Beyond the end counts to the end.
  void record_batch(std::size_t batch_size);
  /// Collective, after a change of the ranks or before the state is saved: unites the ranks'
  /// records, and takes rank and size from `context`. Takes effect with the next `reset`. Throws
  /// Errc::mismatch on every rank when they differ in data set, seed or epoch.
  void synchronize(Context& context);

  /// Deals what has not been recorded.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Data set size, seed, epoch and record.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Throws Errc::invalid_argument when the saved data set or seed is another.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd
