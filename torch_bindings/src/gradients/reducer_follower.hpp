// Makes the reduction of gradients anew in each generation of an elastic job.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include <hvd/hvd.hpp>
#include <hvd/ops/elastic.hpp>
#include <hvd/ops/internal/context_follower.hpp>

#include "gradients/gradient_hook.hpp"
#include "gradients/gradient_reducer_impl.hpp"

namespace hvd::detail {

/// Makes backward passes throw Errc::not_initialized while there are no ranks. A trainer that was
/// not written for elastic jobs, and whose optimizer is its own, would otherwise train each replica
/// by itself.
class RefusedGradients final : public GradientListener {
 public:
  explicit RefusedGradients(const NamedTensors& parameters) {
    for (const torch::Tensor& parameter : parameters.tensors()) {
      hooks_.emplace_back().attach(parameter, *this, hooks_.size());
    }
  }
  void before_gradient(std::size_t /*index*/) override { static_cast<void>(context()); }
  void on_gradient(std::size_t /*index*/, const torch::Tensor& /*incoming*/) override {}

 private:
  std::deque<GradientHook> hooks_;
};

/// What the reduction knows of the gradients is that of one context, so each context gets its own.
class GradientReducer::Follower final : public ContextFollower {
 public:
  using Make = std::function<std::unique_ptr<Impl>(bool broadcasts)>;

  /// Gradients of `refused` are refused until there is a context.
  Follower(const DistributedOptimizerOptions& options, Make make, const NamedTensors& refused)
      : make_(std::move(make)),
        uses_default_context_(options.context == nullptr),
        outlives_context_(uses_default_context_ && options.process_set == 0) {
    // Outside of an elastic job, and with a process set, a missing context makes this throw.
    if (!outlives_context_ || is_initialized() || !elastic::active()) {
      impl = make_(true);
    } else {
      refused_ = std::make_unique<RefusedGradients>(refused);
    }
  }

  void detach() noexcept override {
    if (uses_default_context_) impl.reset();
  }
  void attach(Context&) override {
    refused_.reset();
    if (!impl && outlives_context_) impl = make_(false);
  }

  std::unique_ptr<Impl> impl;

 private:
  Make make_;
  bool uses_default_context_;
  bool outlives_context_;  ///< a process set belongs to one context
  std::unique_ptr<RefusedGradients> refused_;
};

}  // namespace hvd::detail
