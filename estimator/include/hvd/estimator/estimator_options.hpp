// What an estimator is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/estimator/batch_function.hpp>
#include <hvd/estimator/parquet_source.hpp>
#include <hvd/estimator/store.hpp>
#include <hvd/estimator/trainable.hpp>
#include <hvd/torch/compression.hpp>

namespace hvd {

/// Which rows of the training data are kept for validation: `0.1`, or `"is_validation"`.
struct ValidationChoice : Validation {
  ValidationChoice() = default;
  ValidationChoice(double share) : Validation{.fraction = share} {}              // NOLINT: implicit
  ValidationChoice(std::string name) : Validation{.column = std::move(name)} {}  // NOLINT: implicit
  ValidationChoice(const char* name) : ValidationChoice(std::string(name)) {}    // NOLINT: implicit
};

/// Makes the optimizer, with the learning rate of one process.
using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

/// How `fit` runs processes of its own, outside of a job.
struct RunnerOptions {
  /// The most processes that this machine runs at once; 0: as many as cores this process may use.
  int slots = 0;
  /// Where their lines go, each with its rank in front: nowhere else, a file that is made anew, or
  /// a stream. Nothing: they write to this process's own streams themselves, without ranks.
  std::variant<std::monostate, std::string, std::ostream*> output{};
  std::variant<std::monostate, std::string, std::ostream*> error{};
  bool prefix_output_with_timestamp = false;
};

/// Names follow Horovod's estimators. The first four have no default.
struct EstimatorOptions {
  std::optional<EstimatorStore> store{};
  Trainable model{};  ///< trained in place
  MakeOptimizer optimizer{};
  BatchFunction loss{};
  std::vector<EstimatorMetric> metrics{};

  /// As `Columns::input_shapes`.
  std::vector<std::vector<std::int64_t>> input_shapes{};
  std::vector<std::string> feature_cols = {"features"};
  std::vector<std::string> label_cols = {"label"};
  /// Of the model's outputs in what it transforms. Empty: `prediction`, or `<label>__output` for
  /// each of several labels.
  std::vector<std::string> output_cols{};
  /// As `Columns::feature_types`.
  std::vector<torch::Dtype> feature_types{};

  std::int64_t batch_size = 32;     ///< rows, of each rank
  std::int64_t val_batch_size = 0;  ///< 0: as `batch_size`
  int epochs = 1;
  ValidationChoice validation{};
  /// For whoever gives `fit` a second source: what chose its rows, in any words. A run goes on with
  /// the same only.
  std::string validation_rule{};
  bool shuffle = true;
  std::int64_t window_rows = 16384;  ///< as `BatchReaderOptions::window_rows`
  std::uint64_t seed = 0;  ///< of the order of rows, of what is kept for validation, of dropout
  /// Batches of a step, whose gradients are reduced together: a step is that of a batch so many
  /// times as large.
  int backward_passes_per_step = 1;
  /// Multiply the optimizer's learning rate by the number of ranks.
  bool scale_learning_rate = true;
  Compression compression = Compression::none;

  /// Which run of the store this is. Of a run that is there, what it has trained is not trained
  /// again. Empty: a new one, with a name of its own.
  std::string run_id{};
  /// The run has to be there.
  bool resume = false;

  /// 0: nothing is printed; 1: a bar (on a terminal) and a line per epoch; 2: a line per epoch.
  int verbose = 1;

  /// Ranks. Outside of a job they are started, if more than one (0 counts as one); inside of one
  /// they are all of it, and another number is an error.
  int num_proc = 0;
  RunnerOptions runner{};
  Context* context = nullptr;  ///< null: the default context. Outlives the fit.
};

}  // namespace hvd
