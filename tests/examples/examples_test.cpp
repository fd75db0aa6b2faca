// Runs every example as users do, for a few steps on real data.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <stdlib.h>

namespace hvd {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using test::ProcessOptions;
using test::ProcessResult;
using testing::HasSubstr;

constexpr seconds kPatience{240};
constexpr double kDoubleBound = 1e-9;
constexpr double kFloatBound = 1e-5;
constexpr const char* kIdentical = "all ranks hold identical parameters";

using Words = std::vector<std::string>;

/// Two commands that train with the same global batches, in one process and on several ranks.
struct Pair {
  Words alone;
  Words several;
  Words printed;  ///< the words before the numbers that have to be equal
};

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Words lines_of(const fs::path& file) {
  std::ifstream text(file);
  Words lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// Returns the numbers that follow `word` in the text.
std::vector<double> numbers_after(const std::string& word, const std::string& text) {
  const std::regex pattern(word + " ([-+.0-9a-z]+)");
  std::vector<double> numbers;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern);
       it != std::sregex_iterator(); ++it) {
    numbers.push_back(std::stod((*it)[1]));
  }
  return numbers;
}

class Examples : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
      GTEST_SKIP() << "needs Debian's dataset-fashion-mnist";
    }
  }

  [[nodiscard]] static ProcessResult run(Words command) {
    ProcessOptions options;
    options.arguments = std::move(command);
    options.environment = {{"OMP_NUM_THREADS", "1"},  // many ranks on few cores
                           {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    return result;
  }
  /// Returns the commands that run an example in one process and on two ranks.
  [[nodiscard]] static Words alone(const std::string& example, const Words& arguments) {
    return joined({fs::path(EXAMPLES) / example}, arguments);
  }
  [[nodiscard]] static Words on_two(const std::string& example, const Words& arguments) {
    return joined({HVDRUN, "-np", "2"}, alone(example, arguments));
  }
  /// Returns the output of two ranks of an example.
  [[nodiscard]] static std::string run_two(const std::string& example, const Words& arguments) {
    return run(on_two(example, arguments)).out;
  }
  /// Runs both commands with these options and expects the same numbers, within `bound`. Returns
  /// the output of several ranks.
  static std::string expect_equal(const Pair& pair, const Words& options, double bound) {
    const std::string one = run(joined(pair.alone, options)).out;
    std::string several = run(joined(pair.several, options)).out;
    for (const std::string& word : pair.printed) {
      const std::vector<double> wanted = numbers_after(word, one);
      EXPECT_GE(wanted.size(), 2U) << one;
      EXPECT_THAT(numbers_after(word, several),
                  testing::Pointwise(testing::DoubleNear(bound), wanted))
          << word << " with " << pair.alone.front();
    }
    return several;
  }
  /// The loss must fall by at least this share from the first to the last value.
  static void expect_falling_loss(const std::string& out, double share) {
    const std::vector<double> losses = numbers_after("loss", out);
    ASSERT_GE(losses.size(), 2U) << out;
    EXPECT_LT(losses.back(), losses.front() * (1 - share)) << out;
  }
};

TEST_F(Examples, ThreeLinesMakeATrainerDistributed) {
  ProcessOptions diff;
  diff.arguments = {"diff", std::string(SOURCES) + "/three_lines/before.cpp",
                    std::string(SOURCES) + "/three_lines/after.cpp"};
  const ProcessResult compared = test::run_process(std::move(diff), test::in(seconds(30)));
  ASSERT_EQ(compared.exit_code(), 1) << compared.err;
  std::istringstream lines(compared.out);
  std::vector<std::string> added;
  std::size_t removed = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('<')) ++removed;
    if (line.starts_with('>') && line.size() > 2) added.push_back(line);
  }
  EXPECT_EQ(removed, 1U) << compared.out;
  EXPECT_THAT(added,
              testing::ElementsAre(HasSubstr("#include <hvd/torch.hpp>"), HasSubstr("hvd::init();"),
                                   HasSubstr("hvd::DistributedDataParallel parallel(model)"),
                                   HasSubstr("hvd::DistributedSampler")));

  expect_falling_loss(run(alone("three_lines_before", {"61"})).out, 0.1);
  // Both ranks test the whole model on the whole test set and get exactly the same result.
  const std::string both = run_two("three_lines_after", {"61"});
  const std::vector<double> tested = numbers_after("test loss", both);
  ASSERT_EQ(tested.size(), 2U) << both;
  EXPECT_EQ(tested[0], tested[1]) << both;
  EXPECT_LT(tested[0], 1.8) << "guessing makes 2.3";
  EXPECT_EQ(numbers_after("step 0 loss", both).size(), 2U);
}

TEST_F(Examples, ResNet18) {
  const std::string out =
      run_two("train_resnet", {"--steps", "21", "--batch", "8", "--lr", "0.001"});
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.05);
}

TEST_F(Examples, ResNet50) {
  const std::string out =
      run_two("train_resnet", {"--model", "resnet50", "--steps", "2", "--batch", "4"});
  EXPECT_THAT(out, HasSubstr(kIdentical));
  EXPECT_EQ(numbers_after("loss", out).size(), 2U);
}

TEST_F(Examples, AccumulatedGradientsBothWays) {
  const std::string out = run_two("train_accumulate", {"--steps", "31", "--batch", "8"});
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.1);

  const std::string by_hand =
      run_two("train_accumulate", {"--steps", "31", "--batch", "8", "--by-hand"});
  EXPECT_THAT(by_hand, HasSubstr(kIdentical));
  const std::vector<double> losses = numbers_after("loss", out);
  EXPECT_THAT(numbers_after("loss", by_hand),
              testing::Pointwise(testing::DoubleNear(2e-4), losses));
}

TEST_F(Examples, DcganTrainsAsInOneProcess) {
  const Pair pair{.alone = alone("train_dcgan", {"--steps", "11", "--batch", "16"}),
                  .several = on_two("train_dcgan", {"--steps", "11", "--batch", "8"}),
                  .printed = {"loss", "generator"}};
  const std::string out = expect_equal(pair, {"--double"}, kDoubleBound);
  const auto first = out.find(kIdentical);
  ASSERT_NE(first, std::string::npos) << out;
  EXPECT_NE(out.find(kIdentical, first + 1), std::string::npos) << "one of two models\n" << out;
  expect_falling_loss(out, 0.1);  // the discriminator's loss, which starts at guessing
  // Adam divides small gradients by their own size, and their rounding errors with them.
  EXPECT_NE(expect_equal(pair, {}, 1e-2), out);

  // Rank 0 alone draws the images, while the other ranks end.
  std::string pattern = fs::temp_directory_path() / "examples_test.XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::string file = fs::path(pattern) / "drawn.pt";
  static_cast<void>(run_two("train_dcgan", {"--steps", "1", "--batch", "8", "--save", file}));
  EXPECT_GT(fs::file_size(file), 64 * 28 * 28 * sizeof(float));
  fs::remove_all(pattern);
}

TEST_F(Examples, SeveralLossesTrainAsInOneProcess) {
  const Pair pair{.alone = alone("train_several_losses", {"--steps", "31", "--batch", "16"}),
                  .several = on_two("train_several_losses", {"--steps", "31", "--batch", "8"}),
                  .printed = {"loss", "difference"}};
  const std::string out = expect_equal(pair, {}, kDoubleBound);
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.1);
  EXPECT_NE(expect_equal(pair, {"--float"}, kFloatBound), out);
}

TEST_F(Examples, ThreadsTrainAsOneDoes) {
  const Pair pair{.alone = alone("train_threads", {"--steps", "21", "--threads", "1"}),
                  .several = alone("train_threads", {"--steps", "21", "--threads", "3"}),
                  .printed = {"loss"}};
  const std::string out = expect_equal(pair, {}, kDoubleBound);
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.1);
  EXPECT_NE(expect_equal(pair, {"--float"}, kFloatBound), out);
}

TEST_F(Examples, ComplexParametersAreTrainedAsInOneProcess) {
  const Pair pair{.alone = alone("train_fourier", {"--steps", "101"}),
                  .several = on_two("train_fourier", {"--steps", "101"}),
                  .printed = {"loss", "real", "imaginary"}};
  const std::string out = expect_equal(pair, {}, kDoubleBound);
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.5);
  const std::vector<double> learned = numbers_after("imaginary", out);
  ASSERT_EQ(learned.size(), 4U) << out;
  EXPECT_GT(std::abs(learned[3]), 0.1) << out;
  EXPECT_NE(expect_equal(pair, {"--float"}, kFloatBound), out);
}

TEST_F(Examples, ABatchWithLessThanOneForEachRankIsAnError) {
  for (const Words& command : {alone("train_threads", {"--threads", "3", "--batch", "2"}),
                               on_two("train_fourier", {"--batch", "1"})}) {
    ProcessOptions options;
    options.arguments = command;
    const ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 1) << result.out << result.err;
    EXPECT_THAT(result.err, testing::ContainsRegex("a batch needs an? [a-z]+ for each rank"));
  }
}

// The last of three ranks kills itself. The others go on, with the rest of the images.
TEST_F(Examples, TrainingGoesOnWhenARankIsLost) {
  const std::string out =
      run({HVDRUN, "-np", "3", "--min-np", "2", fs::path(EXAMPLES) / "train_elastic", "--images",
           "2400", "--epochs", "3", "--crash-at", "10"})
          .out;
  EXPECT_THAT(out, HasSubstr("generation 1: rank 2 of 3 goes on after step 0"));
  // The others have completed the tenth step, or had not read all of its gradients.
  EXPECT_THAT(out, testing::AnyOf(HasSubstr("of 2 goes on after step 10"),
                                  HasSubstr("of 2 goes on after step 9")));
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.1);
  // Where ranks cannot divide what is left, some images are used twice, once in each pass.
  const std::vector<double> used = numbers_after("used", out);
  ASSERT_EQ(used.size(), 1U) << out;
  EXPECT_GE(used[0], 3 * 2400);
  EXPECT_LT(used[0], 3 * 2400 + 20);
}

// Three lines are not enough for ranks that come and go.
TEST_F(Examples, AnUnchangedTrainerInAnElasticJobIsTold) {
  ProcessOptions options;
  options.arguments = {
      HVDRUN, "-np", "1", "--min-np", "1", fs::path(EXAMPLES) / "three_lines_after", "1"};
  const ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
  EXPECT_NE(result.exit_code(), 0) << result.out;
  EXPECT_THAT(result.err, HasSubstr("put the training loop into one, with an hvd::ElasticState, or "
                                    "start the program without --min-np"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("step 0")));
}

// With shards, a job that loses one of three ranks ends with the bits of one process.
TEST_F(Examples, ExactTrainingDoesNotDependOnTheRanks) {
  const Words program = alone("train_elastic", {"--images", "1200", "--exact", "4"});
  const auto result_of = [](const Words& command) {
    const std::string out = run(command).out;
    const std::size_t at = out.find("after 20 steps: loss ");
    EXPECT_NE(at, std::string::npos) << out;
    return at == std::string::npos ? out : out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_EQ(result_of(joined({HVDRUN, "-np", "3", "--min-np", "2"},
                             joined(program, {"--crash-at", "10"}))),
            result_of(program));
}

TEST_F(Examples, UnevenDataIsAllUsed) {
  const std::string out = run_two("train_uneven", {"--images", "1600", "--epochs", "3"});
  EXPECT_THAT(out, HasSubstr("rank 0 has 1600 images"));
  EXPECT_THAT(out, HasSubstr("rank 1 has 800 images"));
  EXPECT_THAT(out, HasSubstr("rank 0 was last"));
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.1);
}

// The last of the four batches has one image, so a rank has none.
TEST_F(Examples, UnequalBatchesTrainAsOneProcessDoes) {
  const Words arguments{"--images", "100", "--batch", "33", "--epochs", "3"};
  const Pair pair{.alone = alone("train_unequal", arguments),
                  .several = on_two("train_unequal", arguments),
                  .printed = {"loss"}};
  const std::string out = expect_equal(pair, {}, kDoubleBound);
  expect_falling_loss(out, 0);
  EXPECT_NE(expect_equal(pair, {"--float"}, kFloatBound), out);
}

TEST_F(Examples, TransformerLearnsFromAText) {
  const std::string out = run_two("train_transformer", {std::string(SOURCES) + "/../LICENSE",
                                                        "--steps", "31", "--warm-up", "10"});
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.2);
}

TEST_F(Examples, TorchScriptIsTrainedSavedAndTrainedAgain) {
  std::string pattern = fs::temp_directory_path() / "examples_test.XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::string file = fs::path(pattern) / "trained.pt";
  const std::string out = run_two("train_torchscript", {"--steps", "31", "--save", file});
  EXPECT_THAT(out, HasSubstr(kIdentical));
  expect_falling_loss(out, 0.1);

  const std::string again = run_two("train_torchscript", {"--steps", "2", "--module", file});
  EXPECT_THAT(again, HasSubstr(kIdentical));
  EXPECT_LT(numbers_after("loss", again).at(0), numbers_after("loss", out).at(0) * 0.8);
  fs::remove_all(pattern);
}

// One of the 3 and 4 processes does not train.
TEST_F(Examples, AnMpiProgramGetsShorterAndTrainsAsBefore) {
  if (std::string_view(MPIRUN).empty()) GTEST_SKIP() << "needs a build with MPI";
  const fs::path folder = fs::path(SOURCES) / "own_mpi";
  EXPECT_LT(lines_of(folder / "after.cpp").size(), lines_of(folder / "before.cpp").size());

  std::istringstream launcher(MPIRUN);
  const Words mpirun{std::istream_iterator<std::string>(launcher), {}};
  std::vector<double> wanted;
  for (const char* size : {"3", "4"}) {
    for (const char* form : {"own_mpi_before", "own_mpi_after"}) {
      Words command = mpirun;
      command.insert(command.end(), {"-np", size, fs::path(EXAMPLES) / form, "101"});
      const std::string out = run(std::move(command)).out;
      expect_falling_loss(out, 0.5);
      std::vector<double> numbers = numbers_after("loss", out);
      for (const double each : numbers_after("parameter", out)) numbers.push_back(each);
      if (wanted.empty()) wanted = numbers;
      EXPECT_GT(numbers.size(), 80U) << out;
      EXPECT_THAT(numbers, testing::Pointwise(testing::DoubleNear(kDoubleBound), wanted)) << form;
    }
  }
}

// The page shows every line that the two programs do not share.
TEST(ExamplesOnPages, TheMpiProgramsDifferAsThePageSays) {
  const fs::path folder = fs::path(SOURCES) / "own_mpi";
  ProcessOptions diff;
  diff.arguments = {"diff", "-U0", folder / "before.cpp", folder / "after.cpp"};
  std::istringstream compared(test::run_process(std::move(diff), test::in(seconds(30))).out);
  const auto changes_of = [](std::istream& text, bool inside) {
    Words changes;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("```")) inside = line == "```diff";
      const bool is_change = line.starts_with('+') || line.starts_with('-');
      if (inside && is_change && !line.starts_with("+++") && !line.starts_with("---")) {
        changes.push_back(line);
      }
    }
    return changes;
  };
  std::ifstream page(fs::path(SOURCES) / "../docs/how-to/mpi_programs.md");
  const Words wanted = changes_of(compared, true);
  EXPECT_FALSE(wanted.empty());
  EXPECT_EQ(changes_of(page, false), wanted);
}

}  // namespace
}  // namespace hvd
