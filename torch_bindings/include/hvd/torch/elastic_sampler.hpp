// Chooses the examples that this rank trains on when the number of ranks may change within an
// epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

#include <hvd/ops/default_context.hpp>

namespace hvd {

namespace detail {
struct SamplerProgress;
}

struct ElasticSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< the same on every rank
  int rank = -1;           ///< -1: the rank of the default context; the same for `size`
  int size = -1;
  /// When not 0, the ranks together take this many examples in each step, whatever their number
  /// is, and the order of an epoch is that of one rank. See `ElasticSampler`.
  std::size_t global_batch = 0;
  /// When not 0, a global batch is divided into this many shards, which an `ExactOptimizer`
  /// (hvd/torch/exact_optimizer.hpp) distributes over the ranks. Then `next` returns the examples
  /// of all ranks. It is at most `global_batch`.
  int shards = 0;
};

/// Distributes the examples of an epoch that have not been trained on yet over the ranks. The
/// training loop records the examples that it has trained on. After a change of the ranks,
/// `synchronize` merges the records of all ranks, and the rest of the epoch is distributed anew. No
/// example is lost, and examples whose record was lost with a rank are used again. Ranks get
/// equally many examples; when the number of ranks does not divide that of the examples, the first
/// examples are used twice.
///
/// With an `ElasticState` (hvd/torch/elastic.hpp), which then calls `synchronize`, no record is
/// lost with a rank, because ranks record equally many examples at a time. In an elastic job it is
/// constructed before `elastic_run`, and the data loader in its function.
///
/// With the option `global_batch` a step has the same examples with any number of ranks, also after
/// a change of the ranks, so that a model trains as it does without a change, except for rounding.
/// `next` then returns this rank's share of the next step, whatever its argument is. Shares differ
/// by one example at most, and may be empty: weigh the gradients by them, with the option
/// `weighted` of the optimizer and `set_weight(share.size())`. The last step of an epoch is short,
/// and no example is used twice. `record_batch` records the examples of all ranks.
///
/// Copies share their state, because `make_data_loader` takes a copy. One thread at a time may use
/// it.
class ElasticSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws Errc::invalid_argument for a rank that is not below the size, and for shards that do
  /// not fit the global batch.
  explicit ElasticSampler(std::size_t dataset_size, const ElasticSamplerOptions& options = {});

  /// Begins an epoch with an empty record. It takes effect with the next `reset`. Programs need it
  /// only to repeat or to skip epochs.
  void set_epoch(std::size_t epoch);
  [[nodiscard]] std::size_t epoch() const;
  /// Returns the number of examples of this rank in the pass that was begun last.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t dataset_size() const;
  /// Returns the options. Their rank and size are those of the pass.
  [[nodiscard]] const ElasticSamplerOptions& options() const;
  /// Returns the examples of this rank, in order, in the pass that was begun last.
  [[nodiscard]] const std::vector<std::size_t>& indices() const;
  /// Returns the examples of all ranks in the pass that was begun last, in ascending order.
  [[nodiscard]] const std::vector<std::size_t>& remaining() const;
  /// Returns the examples of this epoch that have been trained on, as far as this rank knows, in
  /// ascending order.
  [[nodiscard]] std::vector<std::size_t> recorded() const;

  /// Records that the next `batch_size` examples of this rank, in the order of `next`, have been
  /// trained on. A count beyond the end of the pass records all that are left. With an
  /// `ElasticState` it is called after the step, and calls `end_step`.
  void record_batch(std::size_t batch_size);
  /// Merges the ranks' records, and takes rank and size from `context`. Without an `ElasticState`
  /// the program calls it after a change of the ranks and, on all ranks, before it saves the
  /// sampler. It takes effect with the next `reset`. Collective. Throws Errc::mismatch on every
  /// rank when they differ in data set size, seed or epoch.
  void synchronize(Context& context = hvd::context());

  /// Begins the next epoch, with an empty record. The first reset after construction, `set_epoch`,
  /// `synchronize` or `load`, if `next` was not called in between, distributes the examples of the
  /// epoch that are not recorded instead, unless none is left.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// Returns the next indices into the data set, at most `batch_size`, or nothing at the end of the
  /// pass.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Saves data set size, seed, epoch and record. With an `ElasticState` that is the record of all
  /// ranks.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Throws Errc::invalid_argument when the saved data set size or seed is another one.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  friend struct detail::SamplerProgress;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hvd
