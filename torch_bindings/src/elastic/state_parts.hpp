// Holds the parts of an ElasticState, and copies of what they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <hvd/core/internal/wire.hpp>
#include <hvd/torch/elastic_sampler.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/optimizer_parts.hpp>

#include "data/sampler_progress.hpp"
#include "state/agreement.hpp"
#include "state/optimizer_copy.hpp"

namespace hvd::detail {

/// A variable of the program, as bytes.
struct StateValue {
  std::function<std::string()> read;
  std::function<void(const std::string&)> write;
};

struct StateParts {
  std::vector<torch::nn::Module*> modules;
  std::vector<torch::optim::Optimizer*> optimizers;
  std::vector<ElasticSampler*> samplers;
  std::vector<torch::Tensor*> tensors;
  std::vector<StateValue> values;

  /// Returns the parameters of the modules.
  [[nodiscard]] NamedTensors parameters() const;
  /// Returns those of them that no optimizer steps.
  [[nodiscard]] NamedTensors parameters_without_optimizer() const;
  [[nodiscard]] NamedTensors buffers() const;
  /// Returns whether the modules and tensors include all parameters of the optimizers.
  [[nodiscard]] bool has_all_parameters() const;
  /// Returns whether the state of some optimizer is divided among the ranks.
  [[nodiscard]] bool has_divided() const;
  /// Returns whether a part of such a state is lost when one rank is lost.
  [[nodiscard]] bool has_unmirrored() const;
  /// Describes the parts, for a comparison between ranks.
  [[nodiscard]] std::vector<NamedDigest> describe() const;
  /// Returns how many steps the optimizers have completed that count them.
  [[nodiscard]] std::int64_t completed_steps() const;
  /// Returns why the parameters may be neither those before a step nor those after it once a rank
  /// is lost, or an empty text.
  [[nodiscard]] std::string why_uncertain() const;
  /// Returns whether the parameters are those after the last completed step.
  [[nodiscard]] bool certain() const;
};

/// A copy of everything but the parameters and the state of the optimizers, which is small.
class StateSnapshot {
 public:
  /// Copies what the parts hold now. Reuses the memory of the copy before.
  void take(const StateParts& parts);
  /// Gives it back, except to the samplers.
  void put_back(const StateParts& parts) const;
  /// Sets the random generator as it was.
  void put_back_random() const;

  /// Writes the variables and the learning rates as they are now, and how far the samplers had come
  /// at the snapshot.
  void write_values(WireWriter& to, const StateParts& parts) const;
  /// Sets all of these from what another rank has written. `context` has the ranks that go on.
  static void read_values(WireReader& from, const StateParts& parts, const Context& context);

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> tensors_;
  std::vector<std::string> values_;
  std::vector<std::vector<double>> rates_;  ///< by optimizer, by group
  std::vector<SamplerMark> marks_;
  torch::Tensor random_;
};

[[nodiscard]] bool is_divided(const torch::optim::Optimizer& optimizer);
/// Returns what mirrors the shards of such an optimizer, or null.
[[nodiscard]] ShardMirror* mirror_of(const torch::optim::Optimizer& optimizer);
/// Loads the state that `StateCopy` keeps of such an optimizer.
void restore_divided(torch::optim::Optimizer& optimizer, const Bytes& state);

/// A copy of everything.
struct StateCopy {
  StateSnapshot snapshot;
  std::vector<torch::Tensor> parameters;
  std::vector<OptimizerCopy> optimizers;
  std::vector<Bytes> samplers;

  /// Collective if an optimizer is divided: each rank keeps the whole state. When that throws what
  /// a collective throws, the copy is as before.
  void take(const StateParts& parts);
  void put_back(const StateParts& parts, const Context& context) const;
};

}  // namespace hvd::detail
