// The optimizers whose state can be divided among ranks, with their settings.
#pragma once

#include <gtest/gtest.h>

#include <hvd/torch/sharded_optimizer.hpp>

#include "training.hpp"

namespace hvd::test {

/// Returns options with which the optimizer keeps all the state that it can.
template <class Base>
struct Settings;
template <>
struct Settings<torch::optim::SGD> {
  static auto options() { return torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3); }
};
template <>
struct Settings<torch::optim::Adam> {
  static auto options() { return torch::optim::AdamOptions(0.01).amsgrad(true); }
};
template <>
struct Settings<torch::optim::AdamW> {
  static auto options() { return torch::optim::AdamWOptions(0.01); }
};
template <>
struct Settings<torch::optim::Adagrad> {
  static auto options() { return torch::optim::AdagradOptions(0.05); }
};
template <>
struct Settings<torch::optim::RMSprop> {
  static auto options() { return torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true); }
};

using ShardedKinds = testing::Types<torch::optim::SGD, torch::optim::Adam, torch::optim::AdamW,
                                    torch::optim::Adagrad, torch::optim::RMSprop>;

/// The last layer's weight has another learning rate.
template <class Options>
std::vector<torch::optim::OptimizerParamGroup> two_groups(torch::nn::Sequential& net,
                                                          const Options& options) {
  Options slower = options;
  slower.lr(options.lr() / 2);
  const auto parameters = net->parameters();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{parameters[0], parameters[1], parameters[3]});
  groups.emplace_back(std::vector<torch::Tensor>{parameters[2]},
                      std::make_unique<Options>(std::move(slower)));
  return groups;
}

/// Trains from step `begin` to `end`, each in `passes` equal parts of the batch.
inline void train_sharded(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int rank,
                          int size, int begin, int end, int passes = 1) {
  for (int step = begin; step < end; ++step) {
    const Batch mine = global_batch(step).of_rank(rank, size);
    const std::int64_t part = mine.inputs.size(0) / passes;
    for (int pass = 0; pass < passes; ++pass) {
      loss_of(net,
              {mine.inputs.narrow(0, pass * part, part), mine.targets.narrow(0, pass * part, part)})
          .backward();
    }
    optimizer.step();
  }
}

}  // namespace hvd::test
