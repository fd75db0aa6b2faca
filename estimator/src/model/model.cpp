#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/torch/internal/checkpoint_bytes.hpp>

#include "model/model_file.hpp"
#include "store/file_system.hpp"
#include "training/checked_options.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Restores the mode of each module inside too, because a program may train with some of them in
/// evaluation mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) {
    module.apply(
        [this](torch::nn::Module& each) { modes_.emplace_back(&each, each.is_training()); });
    module.eval();
  }
  ~EvaluationMode() {
    // `train` also changes the modules inside. They come later in this order.
    for (const auto& [module, training] : modes_) module->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

}  // namespace

Model::Model(Trainable module, ModelDescription description, FitSummary summary)
    : module_(std::move(module)),
      description_(std::move(description)),
      summary_(std::move(summary)) {}

Columns Model::columns() const {
  return {.features = description_.feature_cols,
          .labels = description_.label_cols,
          .input_shapes = description_.input_shapes,
          .feature_types = description_.feature_types};
}

std::vector<torch::Tensor> Model::transform(const std::vector<torch::Tensor>& inputs) const {
  const torch::NoGradGuard no_grad;
  const EvaluationMode evaluation(module_.module());
  return module_.forward(inputs);
}

void Model::set_output_cols(std::vector<std::string> names) {
  const std::size_t outputs = description_.output_shapes.size();
  if (names.size() != outputs) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("output_cols: {} names, and the model has {} outputs", names.size(), outputs));
  }
  check_names("output_cols", names);
  description_.output_cols = std::move(names);
}

Bytes Model::to_bytes() const {
  torch::serialize::OutputArchive archive;
  write_model(archive, module_.module(), description_);
  return to_checkpoint(archive);
}

void Model::save(const std::string& uri, const StorageOptions& storage_options) const {
  const SplitUri file = split_uri(uri);
  EstimatorStore::open(file.folder, {.storage_options = storage_options})
      .write(file.name, to_bytes());
}

Model Model::load(const std::string& uri, Trainable module, const StorageOptions& storage_options) {
  const SplitUri file = split_uri(uri);
  const auto bytes =
      EstimatorStore::open(file.folder, {.storage_options = storage_options}).read(file.name);
  if (!bytes) {
    throw Error(Errc::invalid_argument, fmt::format("model: there is no file {}", uri));
  }
  return from_bytes(*bytes, std::move(module), fmt::format("the model {}", uri));
}

Model Model::from_bytes(std::span<const std::byte> bytes, Trainable module,
                        const std::string& what) {
  torch::serialize::InputArchive archive = from_checkpoint(bytes, what);
  ModelFile file = read_description(archive, what);
  read_tensors(archive, module.module(), what);
  return {std::move(module), std::move(file.description)};
}

ModelDescription Model::describe(std::span<const std::byte> bytes, const std::string& what) {
  torch::serialize::InputArchive archive = from_checkpoint(bytes, what);
  return read_description(archive, what).description;
}

}  // namespace hvd
