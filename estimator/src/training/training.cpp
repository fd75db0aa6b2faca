#include "training/training.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <torch/optim/lbfgs.h>

#include <hvd/torch/internal/checkpoint_bytes.hpp>
#include <hvd/torch/object.hpp>
#include <hvd/torch/parameters.hpp>
#include <hvd/torch/sync_batch_norm.hpp>

#include "model/model_file.hpp"
#include "state/agreement.hpp"
#include "table/share_plan.hpp"
#include "training/checked_options.hpp"

namespace hvd::detail {

namespace {

using nlohmann::ordered_json;
using Steady = std::chrono::steady_clock;

/// Operations of different phases have different names, so that the sums of ranks in different
/// phases are never added up.
constexpr const char* kTrainSums = "estimator/train";
constexpr const char* kValidationSums = "estimator/validation";

/// Returns whether the module's forward pass exchanges something between the ranks.
bool normalizes_together(const torch::nn::Module& module) {
  const auto modules = module.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& each) {
    return dynamic_cast<const SyncBatchNormImpl*>(each.get()) != nullptr;
  });
}

/// Describes what the order of the rows depends on. Ranks that read different files would make
/// different numbers of steps, and wait for each other.
ordered_json description_of(const ParquetSource* source) {
  if (source == nullptr) return nullptr;
  const std::vector<std::int64_t> groups = source->row_groups();
  std::uint64_t digest = 0;
  for (const std::int64_t rows : groups) digest = mixed(digest, static_cast<std::uint64_t>(rows));
  return fmt::format("{} rows in {} row groups with the digest {:016x}", source->rows(),
                     groups.size(), digest);
}

}  // namespace

Training::Training(const EstimatorOptions& options, Context& context, const ParquetSource& train,
                   const ParquetSource* validation)
    : options_(options),
      context_(context),
      train_source_(train),
      validation_source_(validation),
      progress_(context.rank() == 0, options.verbose) {}

template <class Function>
void Training::run_locally(Function function) {
  try {
    function();
  } catch (const std::exception& error) {
    if (context_.size() > 1) context_.abort(error.what());
    throw;
  }
}

Model Training::run() {
  agree();
  run_locally([&] {
    choose_rows();
    make_optimizer();
  });
  resume();
  set_learning_rates();
  broadcast_parameters(options_.model.module(), 0, context_);
  distributed_.emplace(
      *optimizer_, options_.model.module().named_parameters(),
      DistributedOptimizerOptions{.backward_passes_per_step = options_.backward_passes_per_step,
                                  .compression = options_.compression,
                                  .broadcast_parameters = false,
                                  .context = &context_});
  progress_.line(
      fmt::format("run {}: {} rows to train with, {} to validate with, {} ranks with batches "
                  "of {}, learning rate {:g}{}",
                  files_->run_id(), train_rows_->selection.rows(),
                  validation_rows_ ? validation_rows_->selection.rows() : 0, context_.size(),
                  options_.batch_size, learning_rate(),
                  resumed_epochs_ > 0 ? fmt::format(", after epoch {}", resumed_epochs_) : ""));
  options_.model.module().train();
  for (int epoch = resumed_epochs_ + 1; epoch <= options_.epochs; ++epoch) {
    train_epoch(epoch);
    save_epoch(epoch);
    progress_.epoch(history_.epochs.back(), options_.epochs);
  }
  distributed_.reset();
  return finish();
}

/// Checks that all ranks have the same parameters and data, and lets rank 0 choose the run.
void Training::agree() {
  if (options_.num_proc > 0 && options_.num_proc != context_.size()) {
    throw Error(Errc::invalid_argument, fmt::format("num_proc: {}, and this job has {} ranks",
                                                    options_.num_proc, context_.size()));
  }
  ordered_json mine = description_of(options_);
  mine["training data"] = description_of(&train_source_);
  mine["validation data"] = description_of(validation_source_);
  const auto all =
      allgather_object(mine.dump(), {.name = "estimator/options", .context = &context_});
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const ordered_json first = ordered_json::parse(all[0]);
    const ordered_json other = ordered_json::parse(all[rank]);
    for (const auto& [name, value] : other.items()) {
      if (first.value(name, ordered_json()) == value) continue;
      throw Error(Errc::mismatch,
                  fmt::format("{}: rank {} has {}, rank 0 has {}", name, rank, value.dump(),
                              first.value(name, ordered_json()).dump()));
    }
  }
  const std::string run_id = on_rank_0(
      context_, [&] { return options_.run_id.empty() ? make_run_id() : options_.run_id; });
  files_.emplace(*options_.store, run_id);
}

void Training::choose_rows() {
  const Columns columns = columns_of(options_);
  train_source_.require(columns);
  if (validation_source_ != nullptr) {
    validation_source_->require(columns);
    train_rows_ = {train_source_, Selection::all(train_source_)};
    validation_rows_ = {*validation_source_, Selection::all(*validation_source_)};
  } else {
    auto [train, validation] = split(train_source_, options_.validation, options_.seed);
    train_rows_ = {train_source_, std::move(train)};
    validation_rows_ = {train_source_, std::move(validation)};
  }
  if (train_rows_->selection.rows() == 0) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: there are no rows to train with, {} of {} are kept for validation",
                    train_source_.uri(), validation_rows_->selection.rows(), train_source_.rows()));
  }
  if (validation_rows_->selection.rows() == 0) validation_rows_.reset();
}

void Training::make_optimizer() {
  torch::nn::Module& module = options_.model.module();
  optimizer_ = options_.optimizer(module.parameters());
  if (!optimizer_) throw Error(Errc::invalid_argument, "optimizer: the function made none");
  if (dynamic_cast<torch::optim::LBFGS*>(optimizer_.get()) != nullptr) {
    throw Error(Errc::unsupported,
                "optimizer: LBFGS has a state that LibTorch cannot save, so that a run of it could "
                "not go on");
  }
  for (const auto& group : optimizer_->param_groups()) {
    base_rates_.push_back(group.options().get_lr());
  }
}

void Training::set_learning_rates() {
  const double factor = options_.scale_learning_rate ? context_.size() : 1;
  for (std::size_t group = 0; group < base_rates_.size(); ++group) {
    optimizer_->param_groups()[group].options().set_lr(base_rates_[group] * factor);
  }
}

double Training::learning_rate() const {
  return optimizer_->param_groups().front().options().get_lr();
}

// ---- resuming

void Training::resume() {
  const std::string found = on_rank_0(context_, [&] {
    if (options_.run_id.empty()) return std::string("0");
    if (options_.resume && !files_->exists()) {
      throw Error(Errc::invalid_argument, fmt::format("run_id: there is no run '{}' in {}",
                                                      options_.run_id, options_.store->uri()));
    }
    return fmt::format("{}", files_->last_epoch());
  });
  const int epoch = std::stoi(found);
  if (epoch == 0) return;
  const std::string path = files_->checkpoint(epoch);
  const std::string what = fmt::format("the checkpoint {}", options_.store->uri_of(path));
  const auto read = [&] {
    auto bytes = options_.store->read(path);
    if (!bytes) throw Error(Errc::resource, fmt::format("{} has vanished", what));
    return std::move(*bytes);
  };
  try {
    load_checkpoint_bytes(
        what, read, [&](torch::serialize::InputArchive& archive) { load(archive, what); }, context_,
        options_.model.device());
  } catch (const Error& error) {
    if (error.code() != Errc::protocol) throw;
    const std::string advice = on_rank_0(context_, [&] { return files_->advice(epoch); });
    throw Error(Errc::protocol, fmt::format("{}; {}", error.what(), advice));
  }
  resumed_epochs_ = epoch;
}

void Training::load(torch::serialize::InputArchive& archive, const std::string& what) {
  ModelFile file = read_description(archive, what);
  const ordered_json& more = file.more;
  const ordered_json lasting = lasting_of(options_);
  for (const auto& [name, value] : more.at("lasting").items()) {
    if (lasting.value(name, ordered_json()) == value) continue;
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: {}, and the run '{}' was begun with {}", name,
                    lasting.value(name, ordered_json()).dump(), options_.run_id, value.dump()));
  }
  const auto rates = more.at("learning_rates").get<std::vector<double>>();
  if (rates.size() != base_rates_.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("optimizer: it has {} parameter groups, that of {} has {}",
                            base_rates_.size(), what, rates.size()));
  }
  read_tensors(archive, options_.model.module(), what);
  torch::serialize::InputArchive state;
  archive.read("optimizer", state);
  try {
    optimizer_->load(state);
  } catch (const c10::Error& error) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("optimizer: it does not take the state in {}, which may be that of another "
                    "kind of optimizer: {}",
                    what, error.what_without_backtrace()));
  }
  base_rates_ = rates;
  history_ = std::move(file.description.history);
  output_shapes_ = std::move(file.description.output_shapes);
}

// ---- an epoch

void Training::train_epoch(int epoch) {
  // Dropout depends on seed, epoch and rank alone, so that a run can be repeated.
  torch::manual_seed(mixed(mixed(options_.seed, static_cast<std::uint64_t>(epoch)),
                           static_cast<std::uint64_t>(context_.rank())));
  const auto began = Steady::now();
  RowSums sums(options_);
  run_locally([&] {
    BatchReader reader(train_rows_->source, columns_of(options_), train_rows_->selection,
                       {.batch_size = options_.batch_size,
                        .rank = context_.rank(),
                        .size = context_.size(),
                        .seed = options_.seed,
                        .epoch = static_cast<std::size_t>(epoch),
                        .shuffle = options_.shuffle,
                        .window_rows = options_.window_rows});
    const auto passes = static_cast<std::size_t>(options_.backward_passes_per_step);
    std::int64_t done = 0;
    while (done < reader.steps()) {
      std::vector<Batch> batches;
      while (batches.size() < passes) {
        auto batch = reader.next();
        if (!batch) break;
        batches.push_back(std::move(*batch));
      }
      if (batches.empty()) break;
      train_step(batches, sums);
      done += static_cast<std::int64_t>(batches.size());
      progress_.step(epoch, options_.epochs, done, reader.steps(), sums.last_loss());
    }
    share_buffers();
  });
  EpochHistory entry{.epoch = epoch, .ranks = context_.size(), .learning_rate = learning_rate()};
  entry.train = sums.means(context_, kTrainSums);
  entry.validation = validate();
  entry.seconds = std::chrono::duration<double>(Steady::now() - began).count();
  history_.epochs.push_back(std::move(entry));
}

/// Makes the gradient the mean over the rows of all ranks. To this end each rank weights its loss
/// by its share of the rows, because `DistributedOptimizer` averages over ranks. In
/// `SyncBatchNorm` the other ranks also wait for a rank without rows.
void Training::train_step(std::vector<Batch>& batches, RowSums& sums) {
  std::int64_t rows = 0;
  for (const Batch& batch : batches) rows += batch.rows_of_all_ranks;
  distributed_->zero_grad();
  for (const Batch& batch : batches) {
    if (batch.rows == 0 && !normalizes_together(options_.model.module())) continue;
    train_batch(
        batch, static_cast<double>(batch.rows) * context_.size() / static_cast<double>(rows), sums);
  }
  distributed_->step();
}

void Training::train_batch(const Batch& batch, double weight, RowSums& sums) {
  const std::vector<torch::Tensor> outputs = options_.model.forward(batch.features);
  note_outputs(outputs, batch.rows);
  const torch::Tensor loss = loss_of(outputs, batch.labels);
  if (!loss.requires_grad()) {
    throw Error(Errc::invalid_argument, "loss: it does not depend on the model's parameters");
  }
  if (weight == 1) {
    loss.backward();
  } else {
    (loss * weight).backward();
  }
  if (batch.rows > 0) sums.add(batch.rows, loss.item<double>(), outputs, batch.labels);
}

torch::Tensor Training::loss_of(const std::vector<torch::Tensor>& outputs,
                                const std::vector<torch::Tensor>& labels) const {
  return options_.loss(outputs, labels, !options_.label_shapes.empty(), "loss");
}

void Training::note_outputs(const std::vector<torch::Tensor>& outputs, std::int64_t rows) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const torch::Tensor& output : outputs) {
    if (output.dim() == 0 || output.size(0) != rows) {
      throw Error(Errc::invalid_argument,
                  fmt::format("model: an output has shape {} for {} rows; the first dimension is "
                              "that of the rows",
                              c10::str(output.sizes()), rows));
    }
    shapes.push_back(output.sizes().slice(1).vec());
  }
  if (shapes == output_shapes_) return;
  static_cast<void>(output_cols_of(options_, shapes.size()));
  output_shapes_ = std::move(shapes);
}

/// Gives all ranks the buffers of rank 0, because buffers such as running statistics differ.
void Training::share_buffers() {
  const auto buffers = options_.model.module().named_buffers();
  if (!buffers.is_empty()) broadcast_parameters(buffers, 0, context_);
}

RowMeans Training::validate() {
  if (!validation_rows_) return {};
  RowSums sums(options_);
  torch::nn::Module& module = options_.model.module();
  run_locally([&] {
    const torch::NoGradGuard no_grad;
    module.eval();
    const std::int64_t batch_size =
        options_.val_batch_size > 0 ? options_.val_batch_size : options_.batch_size;
    BatchReader reader(validation_rows_->source, columns_of(options_), validation_rows_->selection,
                       {.batch_size = batch_size,
                        .rank = context_.rank(),
                        .size = context_.size(),
                        .shuffle = false});
    while (auto batch = reader.next()) {
      if (batch->rows == 0 && !normalizes_together(module)) continue;
      const auto outputs = options_.model.forward(batch->features);
      if (batch->rows == 0) continue;
      const double loss = loss_of(outputs, batch->labels).item<double>();
      sums.add(batch->rows, loss, outputs, batch->labels);
    }
    module.train();
  });
  return sums.means(context_, kValidationSums);
}

// ---- checkpoints and results

ModelDescription Training::description() const {
  return {.run_id = files_->run_id(),
          .feature_cols = options_.feature_cols,
          .label_cols = options_.label_cols,
          .output_cols = output_cols_of(options_, output_shapes_.size()),
          .input_shapes = options_.input_shapes,
          .feature_types = options_.feature_types,
          .output_shapes = output_shapes_,
          .history = history_};
}

void Training::save_epoch(int epoch) {
  const EstimatorStore& store = files_->store();
  const auto write = [&](std::span<const std::byte> bytes) {
    store.write(files_->checkpoint(epoch), bytes);
    store.write(files_->history(), history_.to_json());
    store.write(files_->plot(), history_.to_svg(files_->run_id()));
  };
  save_checkpoint_bytes(
      write,
      [&](torch::serialize::OutputArchive& archive) {
        write_model(archive, options_.model.module(), description(),
                    {{"learning_rates", base_rates_}, {"lasting", lasting_of(options_)}});
        torch::serialize::OutputArchive state(archive.compilation_unit());
        optimizer_->save(state);
        archive.write("optimizer", state);
      },
      nullptr, context_);
}

Model Training::finish() {
  const EstimatorStore& store = files_->store();
  const bool keep = store.options().save_runs;
  FitSummary summary{.learning_rate = learning_rate(),
                     .ranks = context_.size(),
                     .resumed_epochs = resumed_epochs_};
  if (keep) summary.model_uri = store.uri_of(files_->model());
  // A rank without rows has not seen the shapes of the outputs.
  const std::string shapes = on_rank_0(context_, [&] {
    if (keep) {
      const Model model(options_.model, description());
      store.write(files_->model(), model.to_bytes());
    } else {
      store.remove(store.run(files_->run_id()));
    }
    return ordered_json(output_shapes_).dump();
  });
  output_shapes_ = ordered_json::parse(shapes).get<std::vector<std::vector<std::int64_t>>>();
  options_.model.module().eval();
  return {options_.model, description(), summary};
}

}  // namespace hvd::detail
