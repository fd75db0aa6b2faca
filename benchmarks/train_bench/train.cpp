#include "train.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <hvd/core/arena.hpp>

namespace hvd::bench {
namespace {

using Steady = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kBatches = 4;
constexpr int kWarmUp = 12;  // until the schedule is frozen and memory no longer moves
constexpr int kEstimate = 4;

double seconds_since(Steady::time_point begin) { return Seconds(Steady::now() - begin).count(); }

/// Combines the values element by element over the ranks.
std::vector<double> over_ranks(Context& context, std::vector<double> values, ReduceOp op) {
  const torch::Tensor mine = torch::tensor(values, torch::kFloat64);
  const torch::Tensor all = allreduce(mine, {.op = op, .context = &context});
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

double page_faults_of_this_process() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// The memory of this process in MB of 10^6 bytes.
struct ProcessMemory {
  double resident = 0;
  double proportional = 0;  ///< each page divided by the number of its users
};

ProcessMemory memory_of_this_process() {
  ProcessMemory memory;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    double kib = 0;
    if (word == "Rss:" && rollup >> kib) memory.resident = kib * 1024 / 1e6;
    if (word == "Pss:" && rollup >> kib) memory.proportional = kib * 1024 / 1e6;
  }
  return memory;
}

/// Waits until the device has done what the host has queued.
void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

class Trainer {
 public:
  Trainer(Context& context, const Workload& workload, const TrainSettings& settings)
      : context_(context),
        workload_(workload),
        mode_(settings.mode),
        sgd_(on(settings.device, workload).parameters(),
             torch::optim::SGDOptions(0.01).momentum(0.9)) {
    workload.model->train();
    std::vector<std::int64_t> shape = workload.input_shape;
    shape.insert(shape.begin(), workload.batch);
    for (int i = 0; i < kBatches; ++i) {
      if (workload.vocabulary > 0) {
        inputs_.push_back(torch::randint(workload.vocabulary, shape, torch::kInt64));
        targets_.push_back(inputs_.back());
      } else {
        inputs_.push_back(torch::randn(shape));
        targets_.push_back(torch::randint(workload.classes, {workload.batch}));
      }
    }
    for (torch::Tensor& input : inputs_) input = input.to(settings.device);
    for (torch::Tensor& target : targets_) target = target.to(settings.device);
    if (mode_ == Mode::exact) begin_exact(settings.shards);
    if (mode_ != Mode::hvd) return;
    DistributedOptimizerOptions options;
    options.context = &context;
    options.memory = settings.memory;
    distributed_.emplace(sgd_, workload.model->named_parameters(), options);
  }

  void step() {
    if (exact_) return step_exactly();
    const std::size_t batch = steps_++ % kBatches;
    sgd_.zero_grad();
    const torch::Tensor loss = workload_.loss(workload_.forward(inputs_[batch]), targets_[batch]);
    const auto began = Steady::now();
    loss.backward();
    backward_s_ += seconds_since(began);
    if (distributed_) {
      distributed_->step();
    } else {
      if (mode_ == Mode::lockstep) barrier({.name = "lockstep", .context = &context_});
      sgd_.step();
    }
  }

  /// The seconds in backward() so far, on the host; 0 in mode exact.
  [[nodiscard]] double backward_s() const { return backward_s_; }
  [[nodiscard]] double copies() const {
    return distributed_ ? static_cast<double>(distributed_->gradient_counters().copied) : 0;
  }

 private:
  static torch::nn::Module& on(torch::Device device, const Workload& workload) {
    workload.model->to(device);
    return *workload.model;
  }
  /// The ranks have other data than each other, which makes no difference to the times.
  void begin_exact(int shards) {
    const std::size_t all = static_cast<std::size_t>(workload_.batch) * context_.size();
    sampler_.emplace(all, ElasticSamplerOptions{.global_batch = all,
                                                .shards = shards > 0 ? shards : context_.size()});
    exact_.emplace(sgd_, *workload_.model, *sampler_);
    broadcast_parameters(*workload_.model, 0, context_);
  }
  void step_exactly() {
    const std::size_t batch = steps_++ % kBatches;
    sampler_->reset();
    exact_->backward(*sampler_->next(0), [&](const BatchShard& shard) {
      const torch::Tensor rows =
          torch::tensor(std::vector<std::int64_t>(shard.examples.begin(), shard.examples.end())) %
          workload_.batch;
      return workload_.loss(workload_.forward(inputs_[batch].index_select(0, rows)),
                            targets_[batch].index_select(0, rows));
    });
    exact_->step();
  }

  Context& context_;
  const Workload& workload_;
  const Mode mode_;
  torch::optim::SGD sgd_;
  std::optional<DistributedOptimizer<>> distributed_;
  std::optional<ElasticSampler> sampler_;
  std::optional<ExactOptimizer> exact_;
  std::vector<torch::Tensor> inputs_;
  std::vector<torch::Tensor> targets_;
  std::size_t steps_ = 0;
  double backward_s_ = 0;
};

}  // namespace

TrainResult train(Context& context, const Workload& workload, const TrainSettings& settings) {
  Trainer trainer(context, workload, settings);
  TrainResult result;
  for (int i = 0; i < kWarmUp; ++i) trainer.step();
  wait_for(settings.device);

  const auto estimate = Steady::now();
  for (int i = 0; i < kEstimate; ++i) trainer.step();
  wait_for(settings.device);
  const double per_step = seconds_since(estimate) / kEstimate;
  const double slowest = over_ranks(context, {per_step}, ReduceOp::max).front();
  result.steps = settings.steps > 0 ? settings.steps
                                    : std::max(10, static_cast<int>(settings.seconds / slowest));
  // The messages before this point have thawed the schedule, so run until it is frozen again.
  for (int i = 0; i < kWarmUp; ++i) trainer.step();

  barrier({.context = &context});
  for (int i = 0; i < kEstimate; ++i) trainer.step();
  wait_for(settings.device);
  const Stats before = context.stats();
  const double copies = trainer.copies();
  const double backward_s = trainer.backward_s();
  const double faults = page_faults_of_this_process();
  std::vector<double> times;
  const auto begin = Steady::now();
  for (int i = 0; i < result.steps; ++i) {
    const auto began = Steady::now();
    trainer.step();
    times.push_back(seconds_since(began));
  }
  wait_for(settings.device);
  const double elapsed = seconds_since(begin);
  const Stats after = context.stats();
  const double faults_per_step = (page_faults_of_this_process() - faults) / result.steps;

  const double steps = result.steps;
  const auto per_step_ms = [steps](auto from, auto to) {
    return 1e3 * Seconds(to - from).count() / steps;
  };
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  const double images = static_cast<double>(workload.batch) * steps / elapsed;
  result.images_per_s = over_ranks(context, {images}, ReduceOp::sum).front();
  const ProcessMemory memory = memory_of_this_process();
  const double in_arena =
      context.arena() ? static_cast<double>(context.arena()->used()) / 1e6 : 0.0;
  result.pss_mb = over_ranks(context, {memory.proportional}, ReduceOp::average).front();
  const std::vector<double> largest =
      over_ranks(context,
                 {1e3 * times[times.size() / 2], per_step_ms(before.exposed, after.exposed),
                  per_step_ms(before.communication, after.communication),
                  (trainer.copies() - copies) / steps, memory.resident, in_arena, faults_per_step,
                  1e3 * (trainer.backward_s() - backward_s) / steps},
                 ReduceOp::max);
  result.step_ms_p50 = largest[0];
  result.exposed_comm_ms = largest[1];
  result.comm_ms = largest[2];
  result.gradient_copies = largest[3];
  result.rss_mb = largest[4];
  result.arena_mb = largest[5];
  result.page_faults = largest[6];
  result.backward_ms = largest[7];
  return result;
}

}  // namespace hvd::bench
