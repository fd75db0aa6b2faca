// Makes an estimator of the network of Horovod's MNIST tutorial. HvdEstimator runs it on Spark; it
// also trains on Parquet files without Spark.
//
//   mnist_estimator data FOLDER PARQUET_FOLDER   writes Fashion-MNIST's IDX files as Parquet
//   mnist_estimator local STORE TRAIN [TEST]     trains on a Parquet folder and tests on another
//   hvdrun -np 2 mnist_estimator local …
//   mnist_estimator score MODEL FROM TO          writes the rows of FROM with predictions to TO
//   mnist_estimator fit|transform|columns …      is for hvd_spark (docs/how-to/estimator.md)
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/torch.h>

#include <hvd/estimator.hpp>

#include "mnist/dataset.hpp"

namespace {

constexpr double kLearningRate = 0.01;
constexpr double kMomentum = 0.5;
constexpr std::int64_t kTestBatch = 500;

/// Maps images [B, 1, 28, 28] to log-probabilities [B, 10].
class NetImpl : public torch::nn::Module {
 public:
  NetImpl()
      : conv1_(register_module("conv1", torch::nn::Conv2d(1, 10, 5))),
        conv2_(register_module("conv2", torch::nn::Conv2d(10, 20, 5))),
        conv2_drop_(register_module("conv2_drop", torch::nn::Dropout2d())),
        fc1_(register_module("fc1", torch::nn::Linear(320, 50))),
        fc2_(register_module("fc2", torch::nn::Linear(50, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1_(x), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop_(conv2_(x)), 2));
    x = torch::relu(fc1_(x.view({-1, 320})));
    x = torch::dropout(x, 0.5, is_training());
    return torch::log_softmax(fc2_(x), 1);
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  torch::nn::Dropout2d conv2_drop_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};
TORCH_MODULE(Net);

/// Returns the program's own parameters. The parameters of HvdEstimator replace them.
hvd::EstimatorOptions options_of(const hvd::EstimatorArguments& /*arguments*/) {
  torch::manual_seed(1);  // for the initial parameters; all ranks get those of rank 0
  return {.model = Net(),
          .optimizer =
              [](auto parameters) {
                return std::make_unique<torch::optim::SGD>(
                    parameters, torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
              },
          .loss = [](const torch::Tensor& output,
                     const torch::Tensor& label) { return torch::nll_loss(output, label); },
          .metrics = {hvd::accuracy()},
          .input_shapes = {{1, 28, 28}},
          .feature_cols = {"features"},
          .label_cols = {"label"},
          .batch_size = 128,
          .epochs = 3,
          .seed = 1};
}

void write_data(const std::string& from, const std::string& to) {
  for (const auto& [split, name] :
       {std::pair(mnist::Split::train, "train"), std::pair(mnist::Split::test, "test")}) {
    const mnist::Dataset data = mnist::load(from, split);
    hvd::write_parquet(fmt::format("{}/{}/part-0.parquet", to, name), {"features", "label"},
                       {data.images.flatten(1), data.labels});
  }
}

double accuracy_on(const hvd::Model& model, const std::string& uri) {
  const auto source = hvd::ParquetSource::open(uri);
  hvd::BatchReader reader(
      source, {.features = {"features"}, .labels = {"label"}, .input_shapes = {{1, 28, 28}}},
      hvd::Selection::all(source), {.batch_size = kTestBatch, .shuffle = false});
  std::int64_t right = 0;
  while (const auto batch = reader.next()) {
    const torch::Tensor said = model.transform(batch->features).at(0).argmax(1);
    right += said.eq(batch->labels[0]).sum().item<std::int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(source.rows());
}

void train_here(const std::string& store, const std::string& train, const std::string& test) {
  hvd::init();
  hvd::EstimatorOptions options = options_of({});
  options.store = hvd::EstimatorStore::open(store);
  options.validation = 0.1;
  const hvd::Estimator estimator(std::move(options));
  const hvd::Model model = estimator.fit(hvd::ParquetSource::open(train));
  if (hvd::rank() == 0) {
    fmt::print("learning rate {:g} on {} ranks, model {}\n", model.summary().learning_rate,
               model.summary().ranks, model.summary().model_uri);
    if (!test.empty()) fmt::print("test accuracy {:.4f}\n", accuracy_on(model, test));
  }
  hvd::shutdown();
}

/// Does without Spark what HvdModel.transform does on Spark.
void score(const std::string& model, const std::string& from, const std::string& to) {
  const auto scored = hvd::Model::load(model, Net()).transform(hvd::ParquetSource::open(from), to);
  fmt::print("{} rows\n", scored.rows());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const std::string command = argc > 1 ? arguments[1] : "";
  try {
    if (command == "data" && argc == 4) {
      write_data(arguments[2], arguments[3]);
      return 0;
    }
    if (command == "local" && (argc == 4 || argc == 5)) {
      train_here(arguments[2], arguments[3], argc == 5 ? arguments[4] : "");
      return 0;
    }
    if (command == "score" && argc == 5) {
      score(arguments[2], arguments[3], arguments[4]);
      return 0;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "mnist_estimator: {}\n", error.what());
    return 1;
  }
  return hvd::estimator_main(argc, argv, options_of);
}
