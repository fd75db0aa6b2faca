// Small data and a small network for fits.
#pragma once

#include <string>
#include <vector>

#include <hvd/estimator.hpp>

#include "../torch_bindings/contexts.hpp"
#include "folder.hpp"

namespace hvd::test {

constexpr std::int64_t kFeatures = 6;
constexpr std::int64_t kClasses = 3;

/// Rows whose label follows from their features, in row groups of 8: `train` with the columns
/// "features" (list of 6), "label", and "held" (every fourth row).
inline ParquetSource make_rows(const Folder& folder, std::int64_t rows,
                               const std::string& name = "train") {
  const torch::Tensor features = normal({rows, kFeatures}, 17);
  const torch::Tensor label = features.narrow(1, 0, kClasses).argmax(1);
  const torch::Tensor held = torch::arange(rows).remainder(4).eq(0);
  const std::string path = folder / name;
  write_parquet(path + "/part-0.parquet", {"features", "label", "held"}, {features, label, held},
                {.rows_per_group = 8});
  return ParquetSource::open(path);
}

/// Parameters depend on `seed` alone.
inline torch::nn::Sequential make_network(std::uint64_t seed = 3) {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 8), torch::nn::Tanh(),
                            torch::nn::Linear(8, kClasses));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.copy_(normal(parameter.sizes(), ++seed, 0.5));
  return net;
}

inline std::unique_ptr<torch::optim::Optimizer> make_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.1).momentum(0.5));
}

inline torch::Tensor cross_entropy(const torch::Tensor& output, const torch::Tensor& label) {
  return torch::cross_entropy_loss(output, label);
}

inline EstimatorOptions make_options(const Folder& folder) {
  return {.store = EstimatorStore::open(folder / "store"),
          .model = make_network(),
          .optimizer = make_sgd,
          .loss = cross_entropy,
          .metrics = {accuracy()},
          .batch_size = 8,
          .epochs = 2,
          .verbose = 0};
}

inline std::vector<torch::Tensor> values_of(const Model& model) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& each : model.module().module().parameters()) {
    values.push_back(each.detach().clone());
  }
  return values;
}

inline double largest_difference(const std::vector<torch::Tensor>& a,
                                 const std::vector<torch::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

inline bool equal_bits(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal_bits(a[i], b[i])) return false;
  }
  return true;
}

struct FitResult {
  std::vector<std::vector<torch::Tensor>> values{};  ///< by rank
  History history{};                                 ///< of rank 0
  FitSummary summary{};
  std::string run_id{};
};

using Change = std::function<void(EstimatorOptions&)>;

/// A fit on `size` ranks, each a thread with a network of its own. What a rank throws fails the
/// test, unless `errors` takes it.
inline FitResult fit_on(int size, const Folder& folder, const ParquetSource& source,
                        const Change& change = {}, std::vector<std::string>* errors = nullptr) {
  FitResult result;
  result.values.resize(static_cast<std::size_t>(size));
  if (errors) errors->assign(static_cast<std::size_t>(size), "");
  on_ranks(size, [&](Context& context) {
    const auto rank = static_cast<std::size_t>(context.rank());
    EstimatorOptions options = make_options(folder);
    options.context = &context;
    try {
      if (change) change(options);
      const Model model = Estimator(std::move(options)).fit(source);
      result.values[rank] = values_of(model);
      if (rank == 0) {
        result.history = model.history();
        result.summary = model.summary();
        result.run_id = model.run_id();
      }
    } catch (const Error& error) {
      if (!errors) throw;
      (*errors)[rank] = error.what();
    }
  });
  return result;
}

}  // namespace hvd::test
