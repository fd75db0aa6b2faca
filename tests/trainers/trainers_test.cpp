// Tests that the trainers of docs/how-to/your_trainer.md, changed as that page says, train on
// several ranks as they did in one process.
#include <map>
#include <ostream>
#include <string_view>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "data.hpp"

// Declares each trainer as it is, and as the page's diff changes it.
#define TRAINER(name)                     \
  namespace plain::name {                 \
  Tensors train(std::int64_t batch_size); \
  }                                       \
  namespace changed::name {               \
  Tensors train(std::int64_t batch_size); \
  }
#include "trainers.inc"
#undef TRAINER

namespace hvd {
namespace {

constexpr std::int64_t kGlobalBatch = 12;  // divisible by 1, 2 and 3 ranks
constexpr double kTolerance = 1e-9;

using Train = Tensors (*)(std::int64_t);
struct Trainer {
  const char* name;
  Train plain;
  Train changed;

  /// Ranks normalise their own batches there, so the result depends on their number.
  [[nodiscard]] bool equals_one_process() const { return std::string_view(name) != "batch_norm"; }
};

std::ostream& operator<<(std::ostream& out, const Trainer& trainer) { return out << trainer.name; }

const std::vector<Trainer>& trainers() {
  static const std::vector<Trainer> all{
#define TRAINER(name) {#name, &plain::name::train, &changed::name::train},
#include "trainers.inc"
#undef TRAINER
  };
  return all;
}

/// Returns all numbers that the trainer returns, in one row.
torch::Tensor results_of(Train train, std::int64_t batch_size, int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  Tensors rows;
  for (const auto& each : train(batch_size)) {
    rows.push_back(each.detach().flatten().to(torch::kFloat64));
  }
  return torch::cat(rows);
}

/// Returns NaN if any number is NaN.
double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class YourTrainer : public testing::TestWithParam<Trainer> {
 protected:
  static void SetUpTestSuite() {
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    // This process has not joined the job yet.
    for (const Trainer& trainer : trainers()) {
      one_process[trainer.name] = results_of(trainer.plain, kGlobalBatch, 1);
      // Otherwise the test could not tell whether the ranks learn from each other's batches.
      EXPECT_GT(largest_difference(one_process[trainer.name],
                                   results_of(trainer.plain, kGlobalBatch / 2, 1)),
                1e4 * kTolerance)
          << trainer.name << " does not depend on the batch";
    }
    init();
    rank = hvd::rank();
    size = hvd::size();
    shutdown();
  }
  /// The next trainer joins a job of its own.
  void TearDown() override { shutdown(); }

  inline static std::map<std::string, torch::Tensor> one_process;
  inline static int rank = 0;
  inline static int size = 1;
};

TEST_P(YourTrainer, TrainsOnSeveralRanksAsInOneProcess) {
  const Trainer& trainer = GetParam();
  ASSERT_EQ(kGlobalBatch % size, 0);
  // The other ranks begin with other parameters than rank 0 and the process alone.
  const torch::Tensor results = results_of(trainer.changed, kGlobalBatch / size, 1 + rank);
  const Verification same = verify(NamedTensors{{"results", results}});
  EXPECT_TRUE(same) << same.first_difference;
  if (trainer.equals_one_process()) {
    EXPECT_LE(largest_difference(results, one_process[trainer.name]), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Trainers, YourTrainer, testing::ValuesIn(trainers()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace hvd
