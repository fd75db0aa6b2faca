#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/optim/lbfgs.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/exact_optimizer.hpp>

#include "exact/shard_sum.hpp"
#include "gradients/gradient_placement.hpp"
#include "gradients/gradient_setup.hpp"
#include "state/agreement.hpp"
#include "state/digest.hpp"

namespace hvd {

using namespace detail;

namespace {

constexpr std::string_view kExactOptimizer = "ExactOptimizer";
constexpr const char* kSavedSteps = "hvd_steps";
constexpr const char* kSavedBuffers = "hvd_shard_buffers";

/// Gives LibTorch's generator of the CPU back the state that it had.
class KeptGenerator {
 public:
  KeptGenerator() {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeptGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

  void seed(std::uint64_t seed) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_current_seed(seed);
  }

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  torch::Tensor state_;
};

torch::Tensor byte_view(const torch::Tensor& tensor) {
  return tensor.detach().contiguous().view(-1).view(torch::kUInt8);
}

torch::Tensor bytes_of_all(const NamedTensors& tensors) {
  std::vector<torch::Tensor> bytes{torch::empty({0}, torch::kUInt8)};
  for (const auto& [name, tensor] : tensors.items()) bytes.push_back(byte_view(tensor));
  return torch::cat(bytes);
}

void set_all(const NamedTensors& tensors, const torch::Tensor& bytes) {
  std::int64_t at = 0;
  for (const auto& [name, tensor] : tensors.items()) {
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    // The copy begins at an address that suits every dtype.
    const torch::Tensor values = bytes.narrow(0, at, size).clone().view(tensor.scalar_type());
    torch::Tensor(tensor).copy_(values.view(tensor.sizes()));
    at += size;
  }
}

}  // namespace

/// What is kept from step to step, while the context and the trained parameters stay.
struct ExactOptimizer::Workspace {
  const std::shared_ptr<Arena> arena;
  const std::vector<torch::Tensor> parameters;  ///< those that are trained
  GradientPlacement placement;
  std::map<torch::ScalarType, ShardRows> rows;  ///< of the gradients of the parameters

  Workspace(const Context& context, std::vector<torch::Tensor> trained)
      : arena(context.arena()),
        parameters(std::move(trained)),
        placement(GradientMemory::born_shared, context, parameters) {
    std::map<torch::ScalarType, std::vector<torch::Tensor>> lists;
    for (const torch::Tensor& parameter : parameters) {
      lists[parameter.scalar_type()].push_back(parameter);
    }
    for (auto& [dtype, list] : lists) {
      rows.try_emplace(dtype, std::move(list), [this, type = dtype](std::int64_t count) {
        return placement.empty_row(count, torch::TensorOptions(type));
      });
    }
  }
  [[nodiscard]] bool fits(const Context& context, const std::vector<torch::Tensor>& trained) const {
    return arena == context.arena() &&
           std::equal(parameters.begin(), parameters.end(), trained.begin(), trained.end(),
                      [](const auto& a, const auto& b) { return a.is_same(b); });
  }
};

/// One call of `backward`.
struct ExactOptimizer::Pass {
  Workspace& workspace;
  const std::vector<torch::Tensor>& parameters = workspace.parameters;
  NamedTensors buffers;
  std::vector<torch::Tensor> reports;  ///< what all ranks have to know of each shard of this rank

  Pass(Workspace& kept, NamedTensors given_buffers)
      : workspace(kept), buffers(std::move(given_buffers)) {
    workspace.placement.use_on_this_thread();
    for (auto& [dtype, rows] : workspace.rows) rows.begin();
  }

  [[nodiscard]] static double loss_of(const BatchShard& shard, const LossOfShard& function,
                                      std::size_t batch);
  void compute(const BatchShard& shard, const LossOfShard& function, std::size_t batch);
  [[nodiscard]] torch::Tensor gather_reports(Context& context) const;
  void set_gradients(int shards, const torch::Tensor& is_used, Context& context);
};

/// Runs the backward pass of a shard. Returns its part of the mean loss of the batch.
double ExactOptimizer::Pass::loss_of(const BatchShard& shard, const LossOfShard& function,
                                     std::size_t batch) {
  if (shard.examples.empty()) return 0;
  const torch::AutoGradMode with_gradients(true);
  const torch::Tensor loss = function(shard);
  if (!loss.defined() || loss.numel() != 1) {
    misuse(fmt::format("the function returned {}; it must return the mean of the losses of the "
                       "shard's examples, a tensor with one element",
                       loss.defined() ? fmt::format("{} losses", loss.numel()) : "no loss"),
           kExactOptimizer);
  }
  if (!loss.requires_grad()) {
    misuse(
        "the loss that the function returned needs no gradient; it must be computed from the "
        "parameters, with gradients, and not be detached",
        kExactOptimizer);
  }
  const double weight = static_cast<double>(shard.examples.size()) / static_cast<double>(batch);
  loss.backward(torch::full_like(loss, weight));
  return weight * loss.item<double>();
}

void ExactOptimizer::Pass::compute(const BatchShard& shard, const LossOfShard& function,
                                   std::size_t batch) {
  for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  const double loss = loss_of(shard, function, batch);
  const torch::Tensor used = torch::empty({std::ssize(parameters)}, torch::kUInt8);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    used.data_ptr<std::uint8_t>()[i] = parameters[i].grad().defined() ? 1 : 0;
  }
  reports.push_back(
      torch::cat({byte_view(torch::tensor(loss, torch::kFloat64)), used, bytes_of_all(buffers)}));
  for (auto& [dtype, rows] : workspace.rows) rows.add(shard.number);
}

/// Returns the reports of all shards as rows.
torch::Tensor ExactOptimizer::Pass::gather_reports(Context& context) const {
  const std::int64_t width = static_cast<std::int64_t>(sizeof(double)) + std::ssize(parameters) +
                             bytes_of_all(buffers).numel();
  const torch::Tensor mine =
      reports.empty() ? torch::empty({0, width}, torch::kUInt8) : torch::stack(reports);
  return allgather(mine, {.name = "exact_optimizer/reports", .context = &context});
}

/// A parameter that no shard has used has no gradient. Otherwise momentum and weight decay would
/// move it.
void ExactOptimizer::Pass::set_gradients(int shards, const torch::Tensor& is_used,
                                         Context& context) {
  const auto* const used = is_used.const_data_ptr<std::int64_t>();
  for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
  std::map<torch::ScalarType, torch::Tensor> totals;
  for (auto& [dtype, rows] : workspace.rows) {
    totals[dtype] =
        rows.over_ranks(shards, fmt::format("exact_optimizer/{}", torch::toString(dtype)), context);
  }
  std::map<torch::ScalarType, std::int64_t> at;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& parameter = parameters[i];
    const torch::ScalarType dtype = parameter.scalar_type();
    const torch::Tensor sum = totals[dtype].narrow(0, at[dtype], parameter.numel());
    at[dtype] += parameter.numel();
    if (used[i] != 0) parameter.mutable_grad() = sum.view(parameter.sizes());
  }
}

ExactOptimizer::ExactOptimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const ElasticSampler& sampler)
    : WrappedOptimizer(optimizer), module_(module), sampler_(sampler) {
  if (sampler.options().shards == 0) {
    misuse(
        "the sampler has no shards; construct it with options like "
        "{.global_batch = 256, .shards = 8}",
        kExactOptimizer);
  }
  if (dynamic_cast<CountsSteps*>(&optimizer) != nullptr ||
      dynamic_cast<DividesState*>(&optimizer) != nullptr) {
    misuse("it takes an optimizer of LibTorch, because this one communicates itself",
           kExactOptimizer);
  }
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw Error(Errc::unsupported,
                "ExactOptimizer: LBFGS computes the loss several times in a step");
  }
  for (const auto& group : param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      if (parameter.device().is_cpu()) continue;
      throw Error(Errc::unsupported, "ExactOptimizer: a parameter is not on the CPU");
    }
  }
  progress_.threads = at::get_num_threads();
  progress_.buffers = torch::empty({0}, torch::kUInt8);
}

ExactOptimizer::~ExactOptimizer() = default;

BatchShard ExactOptimizer::shard_of(const std::vector<std::size_t>& batch, int number) const {
  const auto shards = static_cast<std::size_t>(sampler_.options().shards);
  const auto begin =
      static_cast<std::ptrdiff_t>(batch.size() * static_cast<std::size_t>(number) / shards);
  const auto end =
      static_cast<std::ptrdiff_t>(batch.size() * (static_cast<std::size_t>(number) + 1) / shards);
  Digest seed;
  seed.add(sampler_.options().seed);
  seed.add(static_cast<std::uint64_t>(progress_.steps));
  seed.add(static_cast<std::uint64_t>(number));
  return {number, {batch.begin() + begin, batch.begin() + end}, seed.value()};
}

/// Makes sure that all ranks compute the same step in the same way.
void ExactOptimizer::prepare(const std::vector<std::size_t>& batch,
                             const std::vector<torch::Tensor>& trained) {
  Digest parameters;
  for (const torch::Tensor& parameter : trained) parameters.add_kind(parameter);
  Digest examples;
  for (const std::size_t index : batch) examples.add(static_cast<std::uint64_t>(index));
  Digest cpu;
  cpu.add(at::get_cpu_capability());
  const std::string difference =
      first_difference(context(),
                       {{"the number of shards", sampler_.options().shards},
                        {"the number of completed steps", progress_.steps},
                        {"the examples of the batch", examples.value()},
                        {"the parameters that need a gradient", parameters.value()},
                        {"the features of the CPU that LibTorch uses", cpu.value()},
                        {"the number of intra-op threads", progress_.threads}},
                       "exact_optimizer");
  if (!difference.empty()) {
    throw Error(Errc::mismatch, fmt::format("ExactOptimizer: {}", difference));
  }
  if (at::get_num_threads() != progress_.threads) at::set_num_threads(progress_.threads);
}

double ExactOptimizer::backward(const std::vector<std::size_t>& batch, const LossOfShard& loss_of) {
  const torch::NoGradGuard no_grad;
  Context& context = hvd::context();
  has_gradients_ = false;
  std::vector<torch::Tensor> trained;
  for (const auto& group : param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      // The base would step a frozen parameter that has a gradient of an earlier step.
      parameter.mutable_grad().reset();
      if (parameter.requires_grad()) trained.push_back(parameter);
    }
  }
  prepare(batch, trained);
  if (!workspace_ || !workspace_->fits(context, trained)) {
    workspace_.reset();
    workspace_ = std::make_unique<Workspace>(context, std::move(trained));
  }
  const int shards = sampler_.options().shards;
  Pass pass(*workspace_, module_.buffers().distinct());
  const torch::Tensor initial = bytes_of_all(pass.buffers);
  if (progress_.buffers.dim() != 2) progress_.buffers = initial.repeat({shards, 1});
  if (progress_.buffers.size(1) != initial.numel()) {
    misuse("the module's buffers do not have the sizes that they had before", kExactOptimizer);
  }
  {
    KeptGenerator generator;
    const ShardNumbers mine = shards_of_rank(shards, context.rank(), context.size());
    for (int number = mine.begin; number < mine.end; ++number) {
      const BatchShard shard = shard_of(batch, number);
      set_all(pass.buffers, progress_.buffers[number]);
      generator.seed(shard.seed);
      pass.compute(shard, loss_of, batch.size());
    }
  }
  const torch::Tensor reports = pass.gather_reports(context);
  constexpr std::int64_t kLossBytes = sizeof(double);
  const auto parameters = std::ssize(pass.parameters);
  const torch::Tensor losses =
      reports.narrow(1, 0, kLossBytes).contiguous().view(-1).view(torch::kFloat64);
  const torch::Tensor is_used = reports.narrow(1, kLossBytes, parameters).sum(0);
  pass.set_gradients(shards, is_used, context);
  progress_.buffers = reports.narrow(1, kLossBytes + parameters, initial.numel()).clone();
  set_all(pass.buffers, progress_.buffers[0]);
  has_gradients_ = true;
  double loss = 0;
  for (int number = 0; number < shards; ++number) loss += losses[number].item<double>();
  return loss;
}

torch::Tensor ExactOptimizer::step(LossClosure closure) {
  if (closure) misuse("step() takes no closure; backward() computes the loss", kExactOptimizer);
  if (!std::exchange(has_gradients_, false)) {
    misuse("step() needs a call of the optimizer's own backward() before it", kExactOptimizer);
  }
  WrappedOptimizer::step();
  ++progress_.steps;
  ++count_.completed;
  context().mark_step();
  return {};
}

void ExactOptimizer::save(torch::serialize::OutputArchive& archive) const {
  WrappedOptimizer::save(archive);
  archive.write(kSavedSteps, torch::tensor(progress_.steps), /*is_buffer=*/true);
  archive.write(kSavedBuffers, progress_.buffers, /*is_buffer=*/true);
}

void ExactOptimizer::load(torch::serialize::InputArchive& archive) {
  torch::Tensor steps = torch::tensor(std::int64_t{0});
  torch::Tensor buffers = torch::empty({0}, torch::kUInt8);
  if (archive.try_read(kSavedSteps, steps, /*is_buffer=*/true)) {
    archive.read(kSavedBuffers, buffers, /*is_buffer=*/true);
  }
  if (buffers.dim() == 2 && buffers.size(0) != sampler_.options().shards) {
    misuse(fmt::format("the state was saved with {} shards, and there are {}", buffers.size(0),
                       sampler_.options().shards),
           kExactOptimizer);
  }
  WrappedOptimizer::load(archive);
  progress_.steps = steps.item<std::int64_t>();
  progress_.buffers = buffers;
}

}  // namespace hvd
