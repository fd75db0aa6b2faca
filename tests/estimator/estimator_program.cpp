// A program with an estimator in it, for tests of whole processes.
//
//   estimator_program job FOLDER EPOCHS        as rank of a job, with dropout: prints a digest
//   estimator_program spawn FOLDER N [SLOTS]   outside of one: starts N processes itself
//   estimator_program fit|transform|columns …  estimator_main; … witness FOLDER leaves there the
//                                              rows that each rank was given, … held keeps rows for
//                                              validation unless it is told which, … regression N
//                                              has N outputs and the squared difference as loss
#include <cstdio>
#include <string>

#include <fmt/ostream.h>
#include <unistd.h>

#include "witness.hpp"

namespace {

using namespace hvd;        // NOLINT: a test
using namespace hvd::test;  // NOLINT: a test

torch::nn::Sequential make_dropping_network() {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 16), torch::nn::Dropout(0.5),
                            torch::nn::BatchNorm1d(16), torch::nn::Linear(16, kClasses));
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 40;
  for (auto& parameter : net->parameters()) parameter.copy_(normal(parameter.sizes(), ++seed, 0.5));
  return net;
}

/// Returns a digest of the bits of parameters and buffers.
double digest_of(const Model& model) {
  double sum = 0;
  double weight = 1;
  for (const auto& [name, tensor] : NamedTensors::of(model.module().module()).items()) {
    sum += tensor.to(torch::kFloat64).sum().item<double>() * (weight += 0.37);
  }
  return sum;
}

/// Writes a file for each process: "t" for training or "v" for validation, the row's number, and
/// its bits.
void leave_rows_in(const std::string& folder, EstimatorOptions& options) {
  const auto file = std::make_shared<std::ofstream>(fmt::format("{}/{}", folder, ::getpid()));
  add_witness(options, [file](const SeenRow& row) {
    fmt::print(*file, "{} {} {}\n", row.training ? "t" : "v", row.number, row.features);
  });
}

EstimatorOptions program_options(const EstimatorArguments& arguments) {
  const std::vector<std::string>& rest = arguments.rest;
  if (!rest.empty()) std::printf("rest %s\n", rest[0].c_str());
  EstimatorOptions options{.model = make_dropping_network(),
                           .optimizer = make_sgd,
                           .loss = cross_entropy,
                           .metrics = {accuracy()},
                           .batch_size = 8,
                           .verbose = 1};
  if (rest.size() == 2 && rest[0] == "witness") leave_rows_in(rest[1], options);
  if (rest.size() == 1 && rest[0] == "held") options.validation = "held";
  if (rest.size() == 2 && rest[0] == "regression") {
    options.model = torch::nn::AnyModule(torch::nn::Linear(kFeatures, std::stoi(rest[1])));
    options.metrics = {};
    options.loss = [](const torch::Tensor& output, const torch::Tensor& label) {
      return torch::mse_loss(output, label);
    };
  }
  return options;
}

void print(const Model& model) {
  std::printf("digest %.17g ranks %d rate %.17g resumed %d pid %d\n", digest_of(model),
              model.summary().ranks, model.summary().learning_rate, model.summary().resumed_epochs,
              static_cast<int>(::getpid()));
  std::fflush(stdout);
}

int job(const std::string& folder, int epochs) {
  EstimatorOptions options = program_options({});
  options.store = EstimatorStore::open(folder + "/store");
  options.epochs = epochs;
  options.run_id = "r";
  options.verbose = 2;
  print(Estimator(std::move(options)).fit(ParquetSource::open(folder + "/train")));
  return 0;
}

int spawned(const std::string& folder, int processes, int slots) {
  EstimatorOptions options = program_options({});
  options.store = EstimatorStore::open(folder + "/store");
  options.num_proc = processes;
  options.epochs = 2;
  options.run_id = "spawned";
  options.runner = {
      .slots = slots, .output = folder + "/out.txt", .prefix_output_with_timestamp = true};
  const Estimator estimator(options);
  const ParquetSource source = ParquetSource::open(folder + "/train");
  print(estimator.fit(source));
  options.run_id = "again";
  options.runner.output = std::monostate();
  print(Estimator(options).fit(source));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "job") return job(argv[2], std::stoi(argv[3]));
    if (command == "spawn") {
      return spawned(argv[2], std::stoi(argv[3]), argc > 4 ? std::stoi(argv[4]) : 0);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "estimator_program: %s\n", error.what());
    return 1;
  }
  return estimator_main(argc, argv, program_options);
}
