// Declares a learning rate scheduler that raises the rate during the first steps.
#pragma once

#include <vector>

#include <torch/optim/schedulers/lr_scheduler.h>

#include <hvd/core/error.hpp>

namespace hvd {

/// Implements the warmup of Goyal et al. 2017, "Accurate, large minibatch SGD", section 2.2. The
/// rates grow linearly, over `steps` calls of `step()`, from `start_factor` times the optimizer's
/// rates to those rates. With n ranks and a rate that was multiplied by n, `start_factor` is
/// usually 1/n. Afterwards the scheduler changes nothing, so that the program may step another one.
class WarmupLR final : public torch::optim::LRScheduler {
 public:
  /// Sets the rates for the first step. Throws Errc::invalid_argument for a factor outside [0, 1].
  WarmupLR(torch::optim::Optimizer& optimizer, unsigned steps, double start_factor)
      : LRScheduler(optimizer), steps_(steps), start_(start_factor) {
    if (!(start_ >= 0 && start_ <= 1)) {
      throw Error(Errc::invalid_argument, "WarmupLR: start_factor lies between 0 and 1");
    }
    for (auto& group : optimizer.param_groups()) {
      wanted_.push_back(group.options().get_lr());
      group.options().set_lr(wanted_.back() * factor(0));
    }
  }

  [[nodiscard]] bool done() const noexcept { return step_count_ >= steps_; }

 private:
  [[nodiscard]] double factor(unsigned step) const noexcept {
    return step >= steps_ ? 1 : start_ + (1 - start_) * step / steps_;
  }

  std::vector<double> get_lrs() override {
    const unsigned next = step_count_ + 1;
    if (next > steps_) return get_current_lrs();
    std::vector<double> rates;
    for (const double wanted : wanted_) rates.push_back(wanted * factor(next));
    return rates;
  }

  unsigned steps_;
  double start_;
  std::vector<double> wanted_;
};

}  // namespace hvd
