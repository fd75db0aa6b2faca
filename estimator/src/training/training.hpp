// Runs one rank's part of a fit.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <hvd/estimator/batch_reader.hpp>
#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/torch/distributed_optimizer.hpp>

#include "training/progress.hpp"
#include "training/row_sums.hpp"
#include "training/run_files.hpp"

namespace hvd::detail {

class Training {
 public:
  /// `validation` may be null. All arguments must outlive the training.
  Training(const EstimatorOptions& options, Context& context, const ParquetSource& train,
           const ParquetSource* validation);

  /// Trains, and returns the model. Collective; throws what `Estimator::fit` throws.
  [[nodiscard]] Model run();

 private:
  struct Rows {
    ParquetSource source;
    Selection selection;
  };

  void agree();
  void choose_rows();
  void make_optimizer();
  void resume();
  void load(torch::serialize::InputArchive& archive, const std::string& what);
  void set_learning_rates();
  void train_epoch(int epoch);
  void train_step(std::vector<Batch>& batches, RowSums& sums);
  void train_batch(const Batch& batch, double weight, RowSums& sums);
  [[nodiscard]] RowMeans validate();
  torch::Tensor loss_of(const std::vector<torch::Tensor>& outputs,
                        const std::vector<torch::Tensor>& labels) const;
  void note_outputs(const std::vector<torch::Tensor>& outputs, std::int64_t rows);
  void share_buffers();
  void save_epoch(int epoch);
  [[nodiscard]] Model finish();

  [[nodiscard]] ModelDescription description() const;
  [[nodiscard]] double learning_rate() const;
  /// Runs a function that is not collective. When it throws, the job is aborted, so that the other
  /// ranks do not wait for this one.
  template <class Function>
  void run_locally(Function function);

  const EstimatorOptions& options_;
  Context& context_;
  const ParquetSource& train_source_;
  const ParquetSource* const validation_source_;
  Progress progress_;

  std::optional<RunFiles> files_;
  std::optional<Rows> train_rows_;
  std::optional<Rows> validation_rows_;

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> base_rates_;  ///< the learning rate of one process, for each parameter group
  std::optional<DistributedOptimizer<>> distributed_;

  History history_;
  int resumed_epochs_ = 0;
  std::vector<std::vector<std::int64_t>> output_shapes_;
};

}  // namespace hvd::detail
