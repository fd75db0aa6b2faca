// One fit, as one rank of a job.
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

#include "progress.hpp"
#include "row_sums.hpp"
#include "run_files.hpp"

namespace hvd {

class Training {
 public:
  /// `validation` may be null. All outlive the training.
  Training(const EstimatorOptions& options, Context& context, const ParquetSource& train,
           const ParquetSource* validation);

  /// Collective. As `Estimator::fit`.
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
  void note_outputs(const std::vector<torch::Tensor>& outputs, std::int64_t rows);
  void share_buffers();
  void save_epoch(int epoch);
  [[nodiscard]] Model finish();

  [[nodiscard]] ModelDescription description() const;
  [[nodiscard]] double learning_rate() const;
  /// What is not collective: when it throws here, the other ranks shall not wait for this one.
  template <class Function>
  void alone(Function function);

  const EstimatorOptions& options_;
  Context& context_;
  const ParquetSource& train_source_;
  const ParquetSource* const validation_source_;
  Progress progress_;

  std::optional<RunFiles> files_;
  std::optional<Rows> train_rows_;
  std::optional<Rows> validation_rows_;

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> base_rates_;  ///< of one process, for each parameter group
  std::optional<DistributedOptimizer<>> distributed_;

  History history_;
  int resumed_epochs_ = 0;
  std::vector<std::vector<std::int64_t>> output_shapes_;
};

}  // namespace hvd
