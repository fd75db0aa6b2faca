// Tests the result of a fit on any number of ranks.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>

#include "witness.hpp"

namespace hvd::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

/// Tolerance for sums in another order.
constexpr double kRounding = 2e-6;

TEST(FitTest, AllRowsInOneStepAreTheSameStepOnAnyNumberOfRanks) {
  const Folder folder;
  for (const std::int64_t rows : {37, 2}) {  // not divisible; fewer than ranks
    const ParquetSource source = make_rows(folder, rows, fmt::format("rows-{}", rows));
    const auto change = [&](EstimatorOptions& options) {
      options.batch_size = rows;
      options.epochs = 5;
      options.scale_learning_rate = false;
    };
    const FitResult one = fit_on(1, folder, source, change);
    EXPECT_LT(one.history.epochs.back().train.loss, 0.99 * one.history.epochs.front().train.loss);
    for (const int size : {2, 3}) {
      const FitResult many = fit_on(size, folder, source, change);
      EXPECT_LT(largest_difference(many.values[0], one.values[0]), kRounding) << size << " ranks";
      for (const auto& values : many.values) EXPECT_TRUE(equal_bits(values, many.values[0]));
      for (std::size_t epoch = 0; epoch < 5; ++epoch) {
        const RowMeans& means = many.history.epochs[epoch].train;
        EXPECT_EQ(means.rows, rows);
        EXPECT_NEAR(means.loss, one.history.epochs[epoch].train.loss, kRounding);
        EXPECT_NEAR(means.metrics.at(0).second,
                    one.history.epochs[epoch].train.metrics.at(0).second, 1e-12);
      }
    }
  }
}

TEST(FitTest, UnevenSharesAndEmptyBatchesCountEachRowOnce) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 19);
  for (const int size : {2, 3, 4}) {
    const FitResult result =
        fit_on(size, folder, source, [](EstimatorOptions& options) { options.batch_size = 3; });
    for (const EpochHistory& epoch : result.history.epochs) EXPECT_EQ(epoch.train.rows, 19);
    for (const auto& values : result.values) EXPECT_TRUE(equal_bits(values, result.values[0]));
  }
}

// Each of four ranks exchanges the statistics of its rows with the others, also when it has none.
TEST(FitTest, RanksWithoutRowsTakePartInSyncBatchNorm) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 5);
  for (const bool tracks : {true, false}) {  // without running statistics also in validation
    const auto change = [&](EstimatorOptions& options) {
      torch::nn::Sequential net(
          torch::nn::Linear(kFeatures, 8),
          SyncBatchNorm(torch::nn::BatchNormOptions(8).track_running_stats(tracks),
                        SyncBatchNormScope{.context = options.context}),
          torch::nn::Tanh(), torch::nn::Linear(8, kClasses));
      const torch::NoGradGuard no_grad;
      std::uint64_t seed = 3;
      for (auto& parameter : net->parameters()) {
        parameter.copy_(normal(parameter.sizes(), ++seed, 0.5));
      }
      options.model = net;
      options.validation = "held";  // two rows
      options.batch_size = 3;       // all the others
      options.scale_learning_rate = false;
    };
    const FitResult one = fit_on(1, folder, source, change);
    const FitResult four = fit_on(4, folder, source, change);
    EXPECT_LT(largest_difference(four.values[0], one.values[0]), 1e-4);
    for (const auto& values : four.values) EXPECT_TRUE(equal_bits(values, four.values[0]));
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      const EpochHistory& ours = four.history.epochs[epoch];
      const EpochHistory& expected = one.history.epochs[epoch];
      EXPECT_EQ(ours.train.rows, 3);
      EXPECT_NEAR(ours.train.loss, expected.train.loss, 1e-4);
      EXPECT_EQ(ours.validation.rows, 2);
      EXPECT_NEAR(ours.validation.loss, expected.validation.loss, 1e-4);
    }
  }
}

/// Rows in files of very different sizes, one of them empty. The label is the row's number.
ParquetSource make_numbered_rows(const Folder& folder, std::vector<std::string>& bits) {
  std::int64_t first = 0;
  int file = 0;
  for (const std::int64_t rows : {90, 0, 1, 40}) {
    const torch::Tensor number = torch::arange(first, first + rows);
    const torch::Tensor features = normal({rows, kFeatures}, 30 + static_cast<std::uint64_t>(file));
    for (std::int64_t row = 0; row < rows; ++row) bits.push_back(bits_of(features[row]));
    write_parquet(folder / fmt::format("numbered/part-{}.parquet", file++),
                  {"features", "label", "held"}, {features, number, number.remainder(4).eq(0)},
                  {.rows_per_group = 16});
    first += rows;
  }
  return ParquetSource::open(folder / "numbered");
}

TEST(FitTest, EveryRowOfAnEpochIsWithOneRankOnce) {
  const Folder folder;
  std::vector<std::string> bits;
  const ParquetSource source = make_numbered_rows(folder, bits);
  using Seen = std::vector<SeenRow>;
  const std::vector<ValidationChoice> choices = {{}, 0.3, "held"};
  for (const int size : {1, 2, 3}) {
    for (const ValidationChoice& validation : choices) {
      SCOPED_TRACE(
          fmt::format("{} ranks, validation {} {}", size, validation.fraction, validation.column));
      std::vector<Seen> of_rank(static_cast<std::size_t>(size));
      const FitResult result = fit_on(size, folder, source, [&](EstimatorOptions& options) {
        Seen& own = of_rank[static_cast<std::size_t>(options.context->rank())];
        add_witness(options, [&own](const SeenRow& row) { own.push_back(row); });
        options.validation = validation;
        options.batch_size = 4;
      });
      // The use of each row in each epoch; every row occurs once, on any rank.
      std::vector<std::map<std::int64_t, std::string>> epochs(2);
      const auto held_out = static_cast<std::size_t>(result.history.epochs[0].validation.rows);
      EXPECT_EQ(held_out > 0, validation.fraction > 0 || !validation.column.empty());
      for (const Seen& seen : of_rank) {
        ASSERT_EQ(seen.size() % 2, 0);
        EXPECT_NEAR(static_cast<double>(seen.size()), 2.0 * 131 / size, 4);
        for (std::size_t i = 0; i < seen.size(); ++i) {
          auto& epoch = epochs[i / (seen.size() / 2)];
          EXPECT_TRUE(epoch.emplace(seen[i].number, seen[i].training ? "t" : "v").second)
              << "row " << seen[i].number << " twice";
          EXPECT_EQ(seen[i].features, bits.at(static_cast<std::size_t>(seen[i].number)));
        }
      }
      EXPECT_EQ(epochs[0].size(), bits.size());
      EXPECT_EQ(epochs[0], epochs[1]) << "the same rows are for validation";
      const auto is_held = [](const auto& row) { return row.second == "v"; };
      EXPECT_EQ(
          static_cast<std::size_t>(std::count_if(epochs[0].begin(), epochs[0].end(), is_held)),
          held_out);
      if (validation.column.empty()) continue;
      for (const auto& [number, use] : epochs[0]) EXPECT_EQ(use == "v", number % 4 == 0);
    }
  }
}

TEST(FitTest, TheLearningRateIsScaledOnce) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  for (const int size : {1, 2, 3}) {
    const FitResult result = fit_on(size, folder, source);
    EXPECT_DOUBLE_EQ(result.summary.learning_rate, 0.1 * size);
    EXPECT_DOUBLE_EQ(result.history.epochs.back().learning_rate, 0.1 * size);
    const FitResult unscaled = fit_on(size, folder, source, [](EstimatorOptions& options) {
      options.scale_learning_rate = false;
    });
    EXPECT_DOUBLE_EQ(unscaled.summary.learning_rate, 0.1);
  }
  // The steps use this rate: that of one process with a batch three times as large.
  const auto all_at_once = [](EstimatorOptions& options) { options.batch_size = 24; };
  const FitResult three = fit_on(3, folder, source, all_at_once);
  const FitResult one = fit_on(1, folder, source, [&](EstimatorOptions& options) {
    all_at_once(options);
    options.optimizer = [](std::vector<torch::Tensor> parameters) {
      return std::make_unique<torch::optim::SGD>(parameters,
                                                 torch::optim::SGDOptions(0.1 * 3).momentum(0.5));
    };
  });
  EXPECT_LT(largest_difference(three.values[0], one.values[0]), kRounding);
}

TEST(FitTest, SeveralPassesAreOneStepOfALargerBatch) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 29);
  const auto of = [&](std::int64_t batch, int passes, int size) {
    return fit_on(size, folder, source, [&](EstimatorOptions& options) {
      options.batch_size = batch;
      options.backward_passes_per_step = passes;
      options.shuffle = false;
      options.scale_learning_rate = false;
    });
  };
  const FitResult large = of(8, 1, 1);
  EXPECT_LT(largest_difference(of(4, 2, 1).values[0], large.values[0]), kRounding);
  // When two ranks make one step of all rows, the distribution of the rows does not matter.
  EXPECT_LT(largest_difference(of(5, 3, 2).values[0], of(29, 1, 1).values[0]), kRounding);
}

TEST(FitTest, LbfgsIsRefused) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 21);
  std::vector<std::string> errors;
  static_cast<void>(fit_on(
      2, folder, source,
      [](EstimatorOptions& options) {
        options.optimizer = [](std::vector<torch::Tensor> parameters) {
          return std::make_unique<torch::optim::LBFGS>(parameters, torch::optim::LBFGSOptions(0.5));
        };
      },
      &errors));
  EXPECT_THAT(errors, Each(HasSubstr("optimizer: LBFGS")));
}

TEST(FitTest, RowsAreKeptForValidation) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 40);
  const FitResult column = fit_on(2, folder, source, [](EstimatorOptions& options) {
    options.validation = "held";
    options.val_batch_size = 3;
  });
  EXPECT_EQ(column.history.epochs[0].train.rows, 30);
  EXPECT_EQ(column.history.epochs[0].validation.rows, 10);
  EXPECT_EQ(column.history.epochs[0].validation.metrics.at(0).first, "accuracy");

  const FitResult fraction =
      fit_on(2, folder, source, [](EstimatorOptions& options) { options.validation = 0.25; });
  const EpochHistory& epoch = fraction.history.epochs[0];
  EXPECT_GT(epoch.validation.rows, 0);
  EXPECT_LT(epoch.validation.rows, 20);
  EXPECT_EQ(epoch.validation.rows + epoch.train.rows, 40);

  // Validation uses the model at the end of the epoch and does not change it.
  const ParquetSource others = make_rows(folder, 10, "others");
  EstimatorOptions options = make_options(folder);
  const Model with = Estimator(options).fit(source, others);
  EXPECT_EQ(with.history().epochs[1].validation.rows, 10);
  const std::vector<torch::Tensor> values = values_of(with);
  options = make_options(folder);
  EXPECT_TRUE(equal_bits(values_of(Estimator(options).fit(source)), values));
}

TEST(FitTest, SeveralInputsAndOutputs) {
  struct TwoImpl : torch::nn::Module {
    TwoImpl()
        : a(register_module("a", torch::nn::Linear(kFeatures, 4))),
          b(register_module("b", torch::nn::Linear(1, 4))) {}
    std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor y) {
      const torch::Tensor sum = a(x) + b(y);
      return {sum.narrow(1, 0, 3), sum.narrow(1, 3, 1)};
    }
    torch::nn::Linear a, b;
  };
  const Folder folder;
  const torch::Tensor features = normal({20, kFeatures}, 1);
  write_parquet(folder / "train/part-0.parquet", {"features", "more", "label", "amount"},
                {features, normal({20}, 2), features.narrow(1, 0, 3).argmax(1), normal({20}, 3)});
  EstimatorOptions options = make_options(folder);
  options.model = torch::nn::AnyModule(std::make_shared<TwoImpl>());
  options.feature_cols = {"features", "more"};
  options.input_shapes = {{kFeatures}, {1}};
  options.label_cols = {"label", "amount"};
  options.metrics = {};
  options.loss = [](const std::vector<torch::Tensor>& outputs,
                    const std::vector<torch::Tensor>& labels) {
    return torch::cross_entropy_loss(outputs[0], labels[0]) +
           torch::mse_loss(outputs[1].flatten(), labels[1]);
  };
  const Model model = Estimator(options).fit(ParquetSource::open(folder / "train"));
  EXPECT_THAT(model.description().output_cols,
              testing::ElementsAre("label__output", "amount__output"));
  EXPECT_THAT(model.output_types(), testing::ElementsAre("array<float>", "float"));
}

// Broadcasting an output [rows, 1] and a label [rows] to [rows, rows] would learn the labels' mean.
TEST(FitTest, LabelsTakeTheShapeOfTheOutput) {
  const Folder folder;
  const torch::Tensor features = normal({64, 2}, 1);
  write_parquet(folder / "train/part-0.parquet", {"features", "label"},
                {features, features.sum(1)});
  EstimatorOptions options = make_options(folder);
  options.model = torch::nn::AnyModule(torch::nn::Linear(2, 1));
  options.input_shapes = {{2}};
  options.metrics = {};
  options.batch_size = 16;
  options.epochs = 20;
  options.loss = [](const torch::Tensor& output, const torch::Tensor& label) {
    return torch::mse_loss(output, label);
  };
  const ParquetSource source = ParquetSource::open(folder / "train");
  const Model model = Estimator(options).fit(source);
  EXPECT_LT(model.history().epochs.back().train.loss, 0.1);

  options.model = torch::nn::AnyModule(torch::nn::Linear(2, 3));
  try {
    static_cast<void>(Estimator(options).fit(source));
    ADD_FAILURE() << "a label of one number beside three outputs was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("loss: the output has the shape [16, 3], and the label "
                                        "[16]. Give label_shapes"));
  }
  options.label_shapes = {{1}};  // each label is compared with three outputs
  static_cast<void>(Estimator(options).fit(source));
}

// A loss would broadcast the output [rows, 1] over two labels, and learn their mean.
TEST(FitTest, LabelsOfAnotherShapeThanTheOutputAreRefusedUnlessTheShapeWasGiven) {
  const Folder folder;
  const torch::Tensor features = normal({64, 2}, 1);
  write_parquet(folder / "train/part-0.parquet", {"features", "label"}, {features, features});
  EstimatorOptions options = make_options(folder);
  options.model = torch::nn::AnyModule(torch::nn::Linear(2, 1));
  options.input_shapes = {{2}};
  options.metrics = {};
  options.batch_size = 16;
  const auto squares = [](const torch::Tensor& output, const torch::Tensor& label) {
    return torch::mse_loss(output, label);
  };
  options.loss = squares;
  const ParquetSource source = ParquetSource::open(folder / "train");
  const auto refusal = [&] {
    try {
      static_cast<void>(Estimator(options).fit(source));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(refusal(), HasSubstr("loss: the output has the shape [16, 1], and the label [16, 2]. "
                                   "Give label_shapes"));
  options.label_shapes = {{2}};
  EXPECT_EQ(refusal(), "none");

  options.label_shapes = {};
  options.loss = [](const std::vector<torch::Tensor>& outputs,
                    const std::vector<torch::Tensor>& labels) {
    return (outputs[0] - labels[0]).square().mean();
  };
  EXPECT_EQ(refusal(), "none");
  options.metrics = {{"squares", squares}};
  EXPECT_THAT(refusal(), HasSubstr("squares: the output has the shape [16, 1], and the label "
                                   "[16, 2]. Give label_shapes"));
  options.label_shapes = {{2}};
  EXPECT_EQ(refusal(), "none");
}

TEST(FitTest, ARankThatThrowsEndsTheOthersWithItsReason) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  std::vector<std::string> errors;
  static_cast<void>(fit_on(
      3, folder, source,
      [](EstimatorOptions& options) {
        if (options.context->rank() != 1) return;
        options.loss = [](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor {
          throw Error(Errc::invalid_argument, "this loss is out of order");
        };
      },
      &errors));
  EXPECT_THAT(errors, Each(HasSubstr("this loss is out of order")));
}

TEST(FitTest, RanksWithDifferentParametersAreToldWhich) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  std::vector<std::string> errors;
  static_cast<void>(fit_on(
      2, folder, source,
      [](EstimatorOptions& options) { options.batch_size = 4 + options.context->rank(); },
      &errors));
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("batch_size"), HasSubstr("rank 1 has 5"))));
}

// They would make different numbers of steps, and wait for each other.
TEST(FitTest, RanksWithDifferentDataAreToldAtOnce) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  const ParquetSource longer = make_rows(folder, 25, "longer");
  write_parquet(folder / "otherwise/part-0.parquet", {"features", "label"},
                {normal({24, kFeatures}, 17), torch::zeros({24}, torch::kInt64)},
                {.rows_per_group = 12});
  const ParquetSource otherwise = ParquetSource::open(folder / "otherwise");
  const auto expect_mismatch = [&](const auto& fit_of_rank_1, const std::string& text) {
    on_ranks(2, [&](Context& context) {
      EstimatorOptions options = make_options(folder);
      options.context = &context;
      const Error error = error_of([&] {
        if (context.rank() == 0) {
          static_cast<void>(Estimator(options).fit(source, source));
        } else {
          fit_of_rank_1(options);
        }
      });
      EXPECT_EQ(error.code(), Errc::mismatch);
      EXPECT_THAT(error.what(), HasSubstr(text));
    });
  };
  const auto with = [](const ParquetSource& train, const ParquetSource& validation) {
    return [train, validation](const EstimatorOptions& options) {
      static_cast<void>(Estimator(options).fit(train, validation));
    };
  };
  expect_mismatch(with(longer, source), "training data: rank 1 has \"25 rows in 4 row groups");
  expect_mismatch(with(otherwise, source), "training data: rank 1 has \"24 rows in 2 row groups");
  expect_mismatch(with(source, longer), "validation data: rank 1 has \"25 rows");
  expect_mismatch(
      [&](EstimatorOptions& options) {
        options.metrics.clear();
        static_cast<void>(Estimator(options).fit(source, source));
      },
      "metrics: rank 1 has []");
}

TEST(FitTest, WhatDoesNotFitIsNamed) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 12);
  const auto error_with = [&](const Change& change) {
    std::vector<std::string> errors;
    static_cast<void>(fit_on(1, folder, source, change, &errors));
    return errors.at(0);
  };
  using Options = EstimatorOptions;
  EXPECT_THAT(error_with([](Options& o) { o.store.reset(); }), HasSubstr("store"));
  EXPECT_THAT(error_with([](Options& o) { o.model = {}; }), HasSubstr("model"));
  EXPECT_THAT(error_with([](Options& o) { o.optimizer = nullptr; }), HasSubstr("optimizer"));
  EXPECT_THAT(error_with([](Options& o) { o.loss = {}; }), HasSubstr("loss"));
  EXPECT_THAT(error_with([](Options& o) { o.batch_size = 0; }),
              AllOf(HasSubstr("batch_size"), HasSubstr("0")));
  EXPECT_THAT(error_with([](Options& o) { o.epochs = -1; }), HasSubstr("epochs: -1"));
  EXPECT_THAT(error_with([](Options& o) { o.validation = 1.5; }), HasSubstr("validation: 1.5"));
  EXPECT_THAT(error_with([](Options& o) { o.validation = "nope"; }), HasSubstr("nope"));
  EXPECT_THAT(error_with([](Options& o) { o.verbose = 3; }), HasSubstr("verbose: 3"));
  EXPECT_THAT(error_with([](Options& o) { o.run_id = "a/b"; }), HasSubstr("a/b"));
  EXPECT_THAT(error_with([](Options& o) { o.num_proc = 4; }), HasSubstr("num_proc: 4"));
  EXPECT_THAT(error_with([](Options& o) { o.feature_cols = {"nope"}; }), HasSubstr("nope"));
  EXPECT_THAT(error_with([](Options& o) { o.label_cols = {"nope"}; }), HasSubstr("nope"));
  EXPECT_THAT(error_with([](Options& o) { o.input_shapes = {{7}}; }), HasSubstr("features"));
  EXPECT_THAT(error_with([](Options& o) { o.output_cols = {"a", "b"}; }), HasSubstr("output_cols"));
  EXPECT_THAT(error_with([](Options& o) {
                o.metrics = {accuracy(), accuracy()};
              }),
              HasSubstr("metrics: 'accuracy' twice"));
  EXPECT_THAT(error_with([](Options& o) {
                o.loss = [](const torch::Tensor& output, const torch::Tensor&) { return output; };
              }),
              HasSubstr("loss: it returned"));
  EXPECT_THAT(
      error_with([](Options& o) { o.model = torch::nn::Sequential(torch::nn::Linear(5, 3)); }),
      HasSubstr("model: forward()"));
  // Nothing was written for any of them.
  EXPECT_FALSE(std::filesystem::exists(folder / "store"));
}

}  // namespace
}  // namespace hvd::test
