#include <memory>
#include <utility>

#include <hvd/torch/wrapped_optimizer.hpp>

#include "gradients/gradient_setup.hpp"

namespace hvd::detail {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

namespace {

/// Reaches the pointer to a group's options. LibTorch's own functions can replace the options, but
/// not give them up.
struct GroupOptions : OptimizerParamGroup {
  static std::unique_ptr<OptimizerOptions>& of(OptimizerParamGroup& group) {
    return group.*&GroupOptions::options_;
  }
};

}  // namespace

WrappedOptimizer::WrappedOptimizer(Optimizer& optimizer)
    : Optimizer(std::vector<OptimizerParamGroup>{}, nullptr), optimizer_(optimizer) {
  const auto& groups = optimizer.param_groups();
  param_groups_.reserve(groups.size());
  shared_.reserve(groups.size() + 1);
  for (auto& group : optimizer.param_groups()) {
    param_groups_.emplace_back(group.params());
    shared_.push_back(&group.options());
  }
  shared_.push_back((optimizer.*&WrappedOptimizer::defaults_).get());
  // From here on two optimizers own the same objects. Nothing may throw, since only the destructor
  // of a complete object gives them up.
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupOptions::of(param_groups_[i]).reset(shared_[i]);
  }
  defaults_.reset(shared_.back());
}

WrappedOptimizer::~WrappedOptimizer() {
  for (std::size_t i = 0; i < param_groups_.size() && i + 1 < shared_.size(); ++i) {
    auto& options = GroupOptions::of(param_groups_[i]);
    if (options.get() == shared_[i]) static_cast<void>(options.release());
  }
  if (defaults_.get() == shared_.back()) static_cast<void>(defaults_.release());
}

bool WrappedOptimizer::groups_are_shared() const {
  const auto& theirs = optimizer_.param_groups();
  if (theirs.size() != param_groups_.size() || theirs.size() + 1 != shared_.size()) return false;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const bool same = &theirs[i].options() == shared_[i] &&
                      &param_groups_[i].options() == shared_[i] &&
                      theirs[i].params().size() == param_groups_[i].params().size();
    if (!same) return false;
  }
  return true;
}

torch::Tensor WrappedOptimizer::step(LossClosure closure) {
  if (!groups_are_shared()) {
    misuse(
        "the wrapped optimizer got groups, parameters or options objects after construction; "
        "construct the DistributedOptimizer after add_param_group(), and change options in place");
  }
  return optimizer_.step(std::move(closure));
}

void WrappedOptimizer::save(torch::serialize::OutputArchive& archive) const {
  optimizer_.save(archive);
}

void WrappedOptimizer::load(torch::serialize::InputArchive& archive) { optimizer_.load(archive); }

Optimizer& unwrapped(Optimizer& optimizer) noexcept {
  auto* const wrapper = dynamic_cast<WrappedOptimizer*>(&optimizer);
  return wrapper ? wrapper->wrapped() : optimizer;
}

const Optimizer& unwrapped(const Optimizer& optimizer) noexcept {
  const auto* const wrapper = dynamic_cast<const WrappedOptimizer*>(&optimizer);
  return wrapper ? wrapper->wrapped() : optimizer;
}

}  // namespace hvd::detail
