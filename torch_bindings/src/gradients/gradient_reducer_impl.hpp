// Defines the state of a `GradientReducer`, and the steps of one reduction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hvd/torch/gradient_reducer.hpp>
#include <hvd/torch/sparse.hpp>

#include "collectives/device_event.hpp"
#include "collectives/first_error.hpp"
#include "gradients/bucket_events.hpp"
#include "gradients/gradient_hook.hpp"
#include "gradients/gradient_placement.hpp"
#include "gradients/gradient_setup.hpp"
#include "gradients/gradient_weight.hpp"
#include "gradients/layout_exchange.hpp"
#include "gradients/pass_agreement.hpp"
#include "gradients/pass_observer.hpp"

namespace hvd::detail {

/// One parameter of a `GradientReducer`.
struct GradientSlot {
  std::string name;        ///< the name that the program gave the parameter
  std::string collective;  ///< the name of its reduction
  torch::Tensor parameter;
  GradientHook hook;
  int group = -1;  ///< the number of its group, or -1
  /// The parameter takes part since before this step, has a group, and its gradient is dense.
  bool joins_group = false;
  std::unique_ptr<CompressedGradient> compressor;  ///< null when it is reduced without one
  torch::TensorOptions compressed;                 ///< of the gradients that the compressor is for
  /// The compressors may send something in a step in which no rank uses the parameter, and which
  /// therefore leaves it unchanged. All ranks keep the average here and add it to their next
  /// gradient.
  torch::Tensor unapplied;

  bool takes_part = false;       ///< the parameter has required a gradient at some step
  int passes = 0;                ///< the number of backward passes since the last reduction
  bool in_flight = false;        ///< submitted, or tried to, or waiting for its group or bucket
  bool grad_is_reduced = false;  ///< `.grad` has been reduced since the last step
  bool is_sparse = false;        ///< the gradients are sparse, and are not made dense
  bool has_none = false;         ///< zeros are being reduced, because this rank has no gradient
  torch::Tensor set_aside;       ///< a reduced gradient, while that of another pass is reduced
  bool is_stepped = false;       ///< the last reduction has stepped the parameter

  torch::Tensor gradient;        ///< the gradient that is being reduced
  torch::Tensor kept;            ///< what was `.grad` before, if the program keeps it
  std::int64_t version = 0;      ///< the version counter of `gradient` when it was submitted
  torch::Tensor converted;       ///< undefined if the engine takes the gradient itself
  bool engine_converts = false;  ///< the engine converts what it takes
  [[nodiscard]] const torch::Tensor& sent() const {
    return converted.defined() ? converted : gradient;
  }

  std::weak_ptr<c10::Storage> in_engine;  ///< of the last reduction, while the engine refers to it

  std::optional<c10::Stream> stream;  ///< on which a gradient on a GPU was produced
  std::optional<std::size_t> bucket;  ///< the index of its bucket, if that is known
  std::uint64_t turn = 0;             ///< `Work::turn` of the reduction

  // At most one of these is set, and none while the group or the bucket is incomplete.
  Work work;
  std::optional<SparseWork> sparse_work;
  bool compressing = false;
};

/// A reduction reduces the gradient of every parameter once. The hooks submit the gradients of a
/// backward pass. Then zeros are submitted for missing gradients, and the thread waits for all. A
/// reduction ends with the backward pass in which it began, or in `synchronize()` or `step()`.
struct GradientReducer::Impl final : GradientListener {
  /// Parameters whose gradients are submitted together: a group of the program's; or a bucket,
  /// which has no name: gradients on a GPU that the frozen schedule fuses. One submission of many
  /// takes the thread of the backward pass less time, and one event.
  struct Group {
    std::string name;
    std::size_t size = 0;  ///< the number of members that take part in this step
    std::vector<GradientSlot*> ready;
  };

  /// `given_owner` begins the messages, and `kind` names the class of the optimizer too.
  Impl(std::string_view given_owner, const std::string& kind,
       const DistributedOptimizerOptions& given, const NamedTensors& parameters,
       StepCount& given_count);
  ~Impl() override;
  [[noreturn]] void misuse(const std::string& message) const { detail::misuse(message, owner); }

  // These are the hooks and the end of a backward pass (gradient_reducer.cpp).
  void before_gradient(std::size_t index) override;
  void on_gradient(std::size_t index, const torch::Tensor& incoming) override;
  void begin_pass();
  void begin_step();
  void expect_end_of_pass();
  void end_pass();
  [[noreturn]] void refuse_pass(const std::string& message);
  void note_wrapped_steps();
  [[nodiscard]] std::string parameters_changed() const;
  [[nodiscard]] std::string nested_only() const;
  [[nodiscard]] std::string two_passes_in_one(const GradientSlot& slot) const;

  // These implement the step (gradient_reducer.cpp).
  void synchronize();
  void finish_step();
  void end_step();
  torch::Tensor reduce_loss(const torch::Tensor& loss);
  torch::Tensor step_with_adasum(LossClosure closure);
  void step_reduced();
  void step_only(const std::vector<GradientSlot*>& chosen);
  void count_groups();

  // These submit gradients (gradient_reduction.cpp).
  void submit(GradientSlot& slot, const torch::Tensor& incoming, double factor = 1);
  void submit_sparse(GradientSlot& slot, double factor);
  void make_compressor_for(GradientSlot& slot, const torch::Tensor& gradient);
  void submit_without_backward(GradientSlot& slot, double factor);
  void submit_missing();
  void add_to(Group& group, GradientSlot& slot);
  void leave_group(GradientSlot& slot);
  void submit_together(Group& group);
  void convert(GradientSlot& slot);
  [[nodiscard]] std::shared_ptr<DeviceEvent> ready(const GradientSlot& slot);
  [[nodiscard]] Submission submission_for(GradientSlot& slot);
  [[nodiscard]] AllreduceOptions reduction(std::string name) const;
  [[nodiscard]] GradientExchange exchange_of(const GradientSlot& slot) {
    return {context, slot.collective, options.process_set};
  }
  void start_agreement();
  [[nodiscard]] bool layouts_are_due() const;
  void start_layout_exchange();
  void finish_layout_exchange();

  // These wait for the submitted gradients (gradient_reduction.cpp).
  void finish_reduction();
  void finish(GradientSlot& slot);
  void finish_compressed();
  [[nodiscard]] static bool put_back_kept(GradientSlot& slot);
  void add_set_aside(GradientSlot& slot);
  void expect_same_buckets();
  void check_untouched(const GradientSlot& slot);

  // These are about the module of a `DistributedDataParallel` (gradient_reduction.cpp).
  void broadcast(const NamedTensors& tensors);
  void check_module() const;
  void check_module_after_pass();
  void submit_buffers();

  const std::string_view owner;
  torch::optim::Optimizer* optimizer = nullptr;  ///< null for a module
  BaseStep base;
  std::optional<ModuleTensors> module;        ///< empty for an optimizer
  std::optional<PassObserver> module_check;   ///< empty for an optimizer
  const DistributedOptimizerOptions options;  ///< the op is sum if they are weighted
  Context& context;
  StepCount& count;    ///< it outlives this object
  std::string prefix;  ///< the names of all collectives begin with it
  std::size_t known_parameters = 0;
  std::optional<GradientPlacement> placement;
  std::vector<Group> groups;
  std::vector<Group> buckets;
  std::deque<GradientSlot> slots;         // a deque, because hooks must not move
  std::optional<LayoutExchange> layouts;  ///< set when there are other ranks
  std::optional<PassAgreement> agreement;
  std::optional<GradientWeight> weight;  ///< only if the options are weighted

  std::vector<std::pair<torch::Tensor, Work>> buffer_works;
  StreamWaits waits;
  BucketEvents events;

  std::mutex mutex;  // hooks of different devices run on different threads
  FirstError error;
  bool has_unsent_gradients = false;  ///< gradients have arrived since the last reduction
  bool is_reduced = false;            ///< this step was reduced, and no gradient has arrived since
  std::int64_t steps = 0;             ///< the number of steps that ended since the last reduction
  int reductions = 0;                 ///< the number of reductions in this step
  /// `parameters_changed` compares it with the parameters. It is set when a pass that is sent
  /// begins.
  std::uint64_t fingerprint_at_pass = 0;
  std::weak_ptr<void> pass_end;  ///< alive while the running backward pass has queued `end_pass`
  /// A parameter without a gradient, if the last pass that called `end_pass` was nested in another;
  /// otherwise null.
  const GradientSlot* missing_after_nested = nullptr;
  int skip_depth = 0;
  int no_sync_depth = 0;
};

}  // namespace hvd::detail
