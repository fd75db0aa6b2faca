// Declares the parameters of an estimator.
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

/// The share of the rows that are used for validation and not for training, such as `0.1`, or the
/// name of the column that marks them, such as `"is_validation"`.
struct ValidationChoice : Validation {
  ValidationChoice() = default;
  ValidationChoice(double share) : Validation{.fraction = share} {}              // NOLINT: implicit
  ValidationChoice(std::string name) : Validation{.column = std::move(name)} {}  // NOLINT: implicit
  ValidationChoice(const char* name) : ValidationChoice(std::string(name)) {}    // NOLINT: implicit
};

/// Makes the optimizer. The learning rate is meant for training with one process.
using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

/// Options for the processes that `fit` starts when it is called outside a job.
struct RunnerOptions {
  /// The greatest number of processes that this machine runs at once. 0 means one for each core
  /// that this process may use.
  int slots = 0;
  /// A file, which is overwritten, or a stream, to which the lines of the ranks are written, each
  /// with its rank in front. By default the ranks write to this process's own streams, without a
  /// prefix.
  std::variant<std::monostate, std::string, std::ostream*> output{};
  std::variant<std::monostate, std::string, std::ostream*> error{};
  bool prefix_output_with_timestamp = false;
};

/// The names are those of Horovod's estimators. The first four options have no default.
struct EstimatorOptions {
  std::optional<EstimatorStore> store{};
  Trainable model{};  ///< trained in place
  MakeOptimizer optimizer{};
  BatchFunction loss{};
  std::vector<EstimatorMetric> metrics{};

  /// See `Columns::input_shapes`.
  std::vector<std::vector<std::int64_t>> input_shapes{};
  std::vector<std::string> feature_cols = {"features"};
  std::vector<std::string> label_cols = {"label"};
  /// See `Columns::label_shapes`. Without them, a label that has as many elements as its output
  /// gets the output's shape, and one of floating-point numbers that has more or fewer is an error,
  /// unless the loss takes all outputs and labels.
  std::vector<std::vector<std::int64_t>> label_shapes{};
  /// The names of the output columns in transformed tables. When empty: `prediction`, or
  /// `<label>__output` for each of several labels.
  std::vector<std::string> output_cols{};
  /// See `Columns::feature_types`.
  std::vector<torch::Dtype> feature_types{};

  std::int64_t batch_size = 32;     ///< rows per rank
  std::int64_t val_batch_size = 0;  ///< 0: the same as `batch_size`
  int epochs = 1;
  ValidationChoice validation{};
  /// Any text that says how the rows of the second source of `fit` were chosen. A run can only be
  /// resumed with the same text.
  std::string validation_rule{};
  bool shuffle = true;
  std::int64_t window_rows = 16384;  ///< see `BatchReaderOptions::window_rows`
  std::uint64_t seed = 0;  ///< seeds the order of rows, the choice of validation rows, and dropout
  /// The number of batches per step. Their gradients are reduced together, so a step equals a step
  /// with one batch of all their rows.
  int backward_passes_per_step = 1;
  /// Multiplies the learning rate of the optimizer by the number of ranks.
  bool scale_learning_rate = true;
  Compression compression = Compression::none;

  /// The name of the run in the store. A run that exists is resumed after its last epoch. When
  /// empty, `fit` begins a run with a new name.
  std::string run_id{};
  /// Requires that the run exists; `fit` throws Errc::invalid_argument otherwise.
  bool resume = false;

  /// With 0 nothing is printed, with 1 a bar (on a terminal) and a line per epoch, and with 2 only
  /// a line per epoch.
  int verbose = 1;

  /// The number of ranks. Outside a job `fit` starts them, if there are more than one (0 means
  /// one). Inside a job it must be 0 or the size of the job.
  int num_proc = 0;
  RunnerOptions runner{};
  Context* context = nullptr;  ///< null: the default context. It must outlive the fit.
};

}  // namespace hvd
