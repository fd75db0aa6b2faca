// Tests runs that continue, and errors that prevent it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>

#include "fit_data.hpp"
#include "small_disk.hpp"

namespace hvd::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::string checkpoint(const Folder& folder, int epoch) {
  return folder / fmt::format("store/runs/r/checkpoint/epoch-{}.hvd", epoch);
}

Change run_r(int epochs) {
  return [epochs](EstimatorOptions& options) {
    options.run_id = "r";
    options.epochs = epochs;
    options.batch_size = 5;
    options.validation = 0.2;
  };
}

TEST(ResumeTest, EndsWithTheBitsOfARunThatWasNotInterrupted) {
  const Folder folder;
  const Folder other;
  const ParquetSource source = make_rows(folder, 43);
  for (const int size : {1, 2, 3}) {
    const FitResult whole = fit_on(size, folder, source, run_r(4));
    EXPECT_EQ(whole.summary.resumed_epochs, 0);
    static_cast<void>(fit_on(size, other, source, run_r(1)));
    static_cast<void>(fit_on(size, other, source, run_r(2)));
    const FitResult resumed = fit_on(size, other, source, run_r(4));
    EXPECT_EQ(resumed.summary.resumed_epochs, 2);
    EXPECT_TRUE(equal_bits(resumed.values[0], whole.values[0])) << size << " ranks";
    ASSERT_EQ(resumed.history.epochs.size(), 4);
    for (std::size_t epoch = 0; epoch < 4; ++epoch) {
      EpochHistory a = resumed.history.epochs[epoch];
      EpochHistory b = whole.history.epochs[epoch];
      a.seconds = b.seconds = 0;
      EXPECT_EQ(a, b) << "epoch " << epoch + 1;
    }
    for (const Folder* const each : {&folder, &other}) {
      std::filesystem::remove_all(each->path() / "store");
    }
  }
}

TEST(ResumeTest, TheLearningRateIsThatOfANewRunOnAnyNumberOfRanks) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  int epochs = 0;
  for (const int size : {2, 3, 1, 2}) {
    const FitResult result = fit_on(size, folder, source, run_r(++epochs));
    EXPECT_EQ(result.summary.resumed_epochs, epochs - 1);
    EXPECT_DOUBLE_EQ(result.summary.learning_rate, 0.1 * size);
    EXPECT_DOUBLE_EQ(result.history.epochs.back().learning_rate, 0.1 * size);
    EXPECT_EQ(result.history.epochs.back().ranks, size);
  }
}

TEST(ResumeTest, ARunThatIsOverIsNotTrainedAgain) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  const FitResult first = fit_on(2, folder, source, run_r(2));
  const FitResult again = fit_on(2, folder, source, [](EstimatorOptions& options) {
    run_r(2)(options);
    options.resume = true;
    options.loss = [](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor {
      throw Error(Errc::internal, "trained again");
    };
  });
  EXPECT_EQ(again.summary.resumed_epochs, 2);
  EXPECT_TRUE(equal_bits(again.values[1], first.values[0]));
}

TEST(ResumeTest, ADamagedCheckpointIsNamedAndNothingIsLost) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  const FitResult whole = fit_on(2, folder, source, run_r(3));
  const std::string good = content_of(checkpoint(folder, 3));
  std::string cut = good.substr(0, good.size() / 2);
  std::string flipped = good;
  flipped[flipped.size() / 3] = static_cast<char>(flipped[flipped.size() / 3] ^ 1);
  for (const std::string& damaged : {cut, flipped, std::string()}) {
    write_content(checkpoint(folder, 3), damaged);
    std::vector<std::string> errors;
    static_cast<void>(fit_on(2, folder, source, run_r(4), &errors));
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("epoch-3.hvd is damaged"),
                                   HasSubstr("delete it to go on after epoch 2"))));
    EXPECT_EQ(content_of(checkpoint(folder, 3)), damaged);
  }
  std::filesystem::remove(checkpoint(folder, 3));
  const FitResult again = fit_on(2, folder, source, run_r(3));
  EXPECT_EQ(again.summary.resumed_epochs, 2);
  EXPECT_TRUE(equal_bits(again.values[0], whole.values[0]));
}

TEST(ResumeTest, ARunThatIsNotThereIsANamedErrorWhereItHasToBe) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  std::vector<std::string> errors;
  static_cast<void>(fit_on(
      2, folder, source,
      [](EstimatorOptions& options) {
        options.run_id = "r";
        options.resume = true;
      },
      &errors));
  EXPECT_THAT(errors, Each(HasSubstr("run_id: there is no run 'r'")));
  EXPECT_FALSE(std::filesystem::exists(folder / "store"));
  EXPECT_EQ(fit_on(2, folder, source, run_r(1)).run_id, "r");
}

TEST(ResumeTest, ARunKeepsWhatItWasBegunWith) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  static_cast<void>(fit_on(1, folder, source, run_r(1)));
  const auto error_with = [&](const Change& change) {
    std::vector<std::string> errors;
    static_cast<void>(fit_on(
        2, folder, source,
        [&](EstimatorOptions& options) {
          run_r(2)(options);
          change(options);
        },
        &errors));
    return errors;
  };
  EXPECT_THAT(error_with([](EstimatorOptions& o) { o.seed = 7; }),
              Each(AllOf(HasSubstr("seed: 7"), HasSubstr("begun with 0"))));
  EXPECT_THAT(error_with([](EstimatorOptions& o) { o.validation = 0.5; }),
              Each(HasSubstr("validation: 0.5")));
  EXPECT_THAT(error_with([](EstimatorOptions& o) {
                o.model = torch::nn::Sequential(torch::nn::Linear(kFeatures, kClasses));
              }),
              Each(AllOf(HasSubstr("model"), HasSubstr("epoch-1.hvd"))));
  EXPECT_THAT(
      error_with([](EstimatorOptions& o) {
        o.optimizer = [](std::vector<torch::Tensor> parameters) {
          return std::make_unique<torch::optim::Adam>(std::move(parameters));
        };
      }),
      Each(AllOf(HasSubstr("optimizer: it does not take the state in"),
                 HasSubstr("epoch-1.hvd, which may be that of another kind of optimizer"))));
}

TEST(ResumeTest, WhatARunLeavesInTheStore) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  const FitResult result = fit_on(2, folder, source, run_r(2));
  const EstimatorStore store = EstimatorStore::open(folder / "store");
  EXPECT_THAT(store.list("runs/r"), testing::ElementsAre("checkpoint", "logs", "model.hvd"));
  EXPECT_THAT(store.list("runs/r/checkpoint"), testing::ElementsAre("epoch-1.hvd", "epoch-2.hvd"));
  EXPECT_THAT(store.list("runs/r/logs"), testing::ElementsAre("history.json", "history.svg"));
  EXPECT_EQ(History::from_json(content_of(folder / "store/runs/r/logs/history.json")),
            result.history);
  EXPECT_THAT(content_of(folder / "store/runs/r/logs/history.svg"),
              AllOf(HasSubstr("</svg>"), HasSubstr("accuracy"), HasSubstr("validation")));
  EXPECT_EQ(result.summary.model_uri, folder / "store/runs/r/model.hvd");
  const Model model = Model::load(result.summary.model_uri, make_network(99));
  EXPECT_TRUE(equal_bits(values_of(model), result.values[0]));
}

TEST(ResumeTest, ARunThatIsNotKeptIsRemoved) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  const FitResult result = fit_on(2, folder, source, [&](EstimatorOptions& options) {
    options.store = EstimatorStore::open(folder / "store", {.save_runs = false});
  });
  EXPECT_EQ(result.summary.model_uri, "");
  EXPECT_THAT(EstimatorStore::open(folder / "store").list("runs"), testing::IsEmpty());
}

/// The store is on a file system of 64 KiB, on which nothing else is mounted. The test below runs
/// this one.
TEST(ResumeTest, DISABLED_OnASmallDisk) {
  const Folder folder;
  const ParquetSource source = make_rows(folder, 24);
  std::vector<std::string> errors;
  const auto on_the_disk = [&](int epochs) {
    return [&, epochs](EstimatorOptions& options) {
      run_r(epochs)(options);
      options.store = EstimatorStore::open("/mnt/store");
    };
  };
  static_cast<void>(fit_on(2, folder, source, on_the_disk(50), &errors));
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("No space left on device"), HasSubstr("/mnt/store"))));
  const EstimatorStore store = EstimatorStore::open("/mnt/store");
  const auto saved = store.list("runs/r/checkpoint");
  ASSERT_FALSE(saved.empty());
  // Earlier checkpoints are whole, and the run continues elsewhere, where there is room.
  std::filesystem::create_directories(folder / "store/runs");
  std::filesystem::copy("/mnt/store/runs/r", folder / "store/runs/r",
                        std::filesystem::copy_options::recursive);
  const int last = static_cast<int>(saved.size());
  const FitResult again = fit_on(2, folder, source, run_r(last + 1));
  EXPECT_EQ(again.summary.resumed_epochs, last);
}

TEST(ResumeTest, AFullDiskIsANamedErrorAndLosesNothing) {
  run_on_small_disk("ResumeTest.DISABLED_OnASmallDisk");
}

}  // namespace
}  // namespace hvd::test
