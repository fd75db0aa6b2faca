// A small network and its data, trained with and without ranks.
#pragma once

#include "contexts.hpp"

namespace hvd::test {

constexpr std::int64_t kGlobalBatch = 24;  // divisible by 1, 2, 3 and 4 ranks
constexpr std::int64_t kFeatures = 6;
constexpr std::int64_t kClasses = 3;

/// Parameters depend only on `seed`.
inline torch::nn::Sequential make_net(std::uint64_t seed) {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 8), torch::nn::Tanh(),
                            torch::nn::Linear(8, kClasses));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.copy_(normal(parameter.sizes(), ++seed, 0.5));
  return net;
}

struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;

  /// Returns every size-th example, beginning with `rank`.
  [[nodiscard]] Batch of_rank(int rank, int size) const {
    return {inputs.slice(0, rank, kGlobalBatch, size), targets.slice(0, rank, kGlobalBatch, size)};
  }
};

inline Batch global_batch(int step) {
  const auto seed = static_cast<std::uint64_t>(1000 + step);
  return {normal({kGlobalBatch, kFeatures}, seed), normal({kGlobalBatch, kClasses}, seed + 500)};
}

inline torch::Tensor loss_of(torch::nn::Sequential& net, const Batch& batch) {
  return torch::mse_loss(net->forward(batch.inputs), batch.targets);
}

/// Computes in one process the gradients of ranks whose gradients travel as bf16: each rank's
/// gradients are rounded and added in f32, and their mean is rounded.
inline void backward_through_bf16(torch::nn::Sequential& net, int step, int ranks) {
  const auto rounded = [](const torch::Tensor& values) {
    return values.to(torch::kBFloat16).to(torch::kFloat32);
  };
  std::vector<torch::Tensor> sums;
  for (const auto& parameter : net->parameters()) {
    sums.push_back(torch::zeros_like(parameter, torch::TensorOptions().requires_grad(false)));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    net->zero_grad();
    loss_of(net, global_batch(step).of_rank(rank, ranks)).backward();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += rounded(net->parameters()[i].grad());
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    net->parameters()[i].mutable_grad() = rounded(sums[i] / ranks);
  }
}

/// Returns how many small allreduces a distributed optimizer submits besides the gradients in step
/// `step`, which counts from 0: one in which the ranks agree on the pass, and another in step 0,
/// in which they use all parameters.
inline std::uint64_t small_messages(int ranks, int step) {
  return ranks == 1 ? 0 : step == 0 ? 2 : 1;
}

inline std::vector<torch::Tensor> values_of(torch::nn::Sequential& net) {
  std::vector<torch::Tensor> values;
  for (const auto& parameter : net->parameters()) values.push_back(parameter.detach().clone());
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

/// Records the result of each rank and checks that all have the same bits.
class Outcomes {
 public:
  explicit Outcomes(int size) : by_rank_(static_cast<std::size_t>(size)) {}

  void set(int rank, torch::nn::Sequential& net) {
    by_rank_[static_cast<std::size_t>(rank)] = values_of(net);
  }
  /// Expects values near `wanted`, which must differ from `start` by at least 100 times the
  /// tolerance.
  void expect(const std::vector<torch::Tensor>& wanted, const std::vector<torch::Tensor>& start,
              double tolerance = 1e-5) const {
    EXPECT_GT(largest_difference(wanted, start), 100 * tolerance) << "nothing was learnt";
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
      ASSERT_EQ(by_rank_[rank].size(), wanted.size()) << "rank " << rank;
      EXPECT_LT(largest_difference(by_rank_[rank], wanted), tolerance) << "rank " << rank;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(equal_bits(by_rank_[rank][i], by_rank_[0][i]))
            << "rank " << rank << " differs from rank 0 in parameter " << i;
      }
    }
  }

 private:
  std::vector<std::vector<torch::Tensor>> by_rank_;
};

}  // namespace hvd::test
