// Compiles the C++ of the pages. Blocks are included from files that page_code.awk makes of the
// pages; the pages' code spans are repeated here, and the test docs_guide looks for them. Never
// run.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>

#include <hvd/torch.hpp>

namespace guide {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return fc1->forward(input); }
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(784, 10))};
};
TORCH_MODULE(Net);

void readme(Net& model, std::size_t dataset_size) {
#include "README_1.inc"
}

struct Batch {
  torch::Tensor images;
  torch::Tensor labels;
};
Batch next_batch(torch::data::samplers::RandomSampler& sampler);

void tutorial_before(std::size_t dataset_size, int steps) {
#include "tutorial_1.inc"
}

void tutorial(Net& model, std::size_t dataset_size) {
#include "tutorial_2.inc"
}

using Stacked =
    decltype(std::declval<torch::data::datasets::MNIST>().map(torch::data::transforms::Stack<>()));

void tutorial_lines(Stacked dataset, std::size_t dataset_size, int seed, Net& model, int step,
                    const torch::Tensor& loss) {
#include "tutorial_3.inc"
  static_cast<void>(loader);
}

void whole_trainer(torch::data::datasets::MNIST& dataset, int epochs) {
#include "from_python_1.inc"
}

int joining(const hvd::Config& config) {
  auto own = hvd::make_context(config);
  return hvd::rank() + hvd::size() + hvd::local_rank() + hvd::local_size() + hvd::cross_rank() +
         (hvd::is_initialized() ? own->rank() : 0);
}

void join_some() {
  auto config = hvd::Config::from_environment();
  config.ranks = {0, 2};
  hvd::init(config);
}

void place(Net& model) {
  model->to(torch::Device(torch::kCUDA, hvd::local_rank() % torch::cuda::device_count()));
}

void distribute(Net& model) {
  { hvd::DistributedDataParallel parallel(model); }
  { hvd::DistributedDataParallel parallel(model, {.broadcast_parameters = false}); }
  hvd::DistributedDataParallel parallel(model, {.broadcast_buffers = false});
}

void construct(Net& model, torch::optim::SGD& sgd) {
  { hvd::DistributedOptimizer<torch::optim::SGD> optimizer(*model, 0.05); }
  {
    hvd::DistributedOptimizer opt(sgd, *model);
    hvd::DistributedOptimizer optimizer(sgd, *model);
  }
  hvd::DistributedOptimizer opt(sgd, model->named_parameters());
  hvd::DistributedOptimizer<torch::optim::Adam> adam(*model, torch::optim::AdamOptions(1e-3));
}

void construct_with_options(Net& model, torch::optim::SGD& sgd) {
  hvd::DistributedOptimizer opt(sgd, *model, {.compression = hvd::Compression::bf16});
}

std::vector<hvd::DistributedOptimizerOptions> optimizer_options(const hvd::ProcessSet& even) {
  return {
      {.compression = hvd::Compression::fp16},
      {.compression = hvd::Compression::bf16},
      {.compressor = hvd::power_sgd(2)},
      {.compressor = hvd::top_k(0.01)},
      {.backward_passes_per_step = 4},
      {.op = hvd::ReduceOp::sum},
      {.adasum = true},
      {.gradient_predivide_factor = 2.0},
      {.num_groups = 4},
      {.groups = {{"fc1.weight", "fc1.bias"}}},
      {.sparse_as_dense = true},
      {.wait_in_backward = false},
      {.step_in_backward = true},
      {.process_set = even.id},
      {.memory = hvd::GradientMemory::born_shared},
  };
}

template <class LossOf>
void accumulate(hvd::DistributedOptimizer<>& optimizer, const std::vector<torch::Tensor>& micros,
                const LossOf& loss_of) {
#include "from_python_2.inc"
}
template void accumulate(hvd::DistributedOptimizer<>&, const std::vector<torch::Tensor>&,
                         torch::Tensor (*const&)(const torch::Tensor&));

void clip(Net& model, hvd::DistributedOptimizer<>& optimizer, const torch::Tensor& loss) {
#include "from_python_3.inc"
  optimizer.synchronize();
}

void shard(Net& model, hvd::DistributedOptimizer<>& optimizer,
           const torch::optim::Optimizer::LossClosure& closure,
           torch::serialize::OutputArchive& archive) {
  optimizer.step(closure);
  hvd::ShardedOptimizer<torch::optim::Adam> sharded(model->named_parameters(),
                                                    torch::optim::AdamOptions(1e-3));
  sharded.clip_grad_norm(1.0);
  sharded.save(archive);
}

void state(Net& model, std::string text, const torch::jit::Module& script) {
  hvd::broadcast_parameters(model->named_parameters(), 1);
  text = hvd::broadcast_object(text);
  hvd::broadcast_object_(model);
  auto texts = hvd::allgather_object(text);
  auto same = hvd::verify(model);
  hvd::DistributedDataParallel parallel(script);
}

std::size_t data(std::size_t size) {
  hvd::ElasticSampler elastic(size);
  elastic.record_batch(64);
  elastic.synchronize();
  hvd::DistributedSampler sampler(size, {.seed = 7, .drop_last = true});
  auto sound = hvd::verify(sampler);
  return sampler.size();
}

void set_rate(int ranks);

void elastic_jobs(Net& model, hvd::DistributedOptimizer<torch::optim::Adam>& adam,
                  hvd::ElasticSampler& elastic, const std::function<void()>& train_all,
                  const std::function<void()>& on_reset) {
  int epoch = 0;
  hvd::ElasticState state(model, adam, elastic, epoch);
  state.on_reset(on_reset);
  state.on_reset([&] { set_rate(hvd::size()); });
  const bool finished = hvd::elastic_run(state, train_all);
  if (!finished) return;
  state.commit();
  state.restore();
  state.end_step();
  hvd::elastic::check_host_updates();
}

void train_on(const std::vector<std::size_t>& batch);
void elastic(std::size_t dataset_size, int epochs) {
#include "elastic_1.inc"
}

void with_a_global_batch(Net& model, std::size_t dataset_size) {
#include "elastic_2.inc"
  const auto share = sampler.next(0);
  optimizer.set_weight(share->size());
  hvd::SyncBatchNorm norm(torch::nn::BatchNormOptions(64),
                          hvd::SyncBatchNormScope{.weighted = true});
}

void in_two_segments(hvd::DistributedOptimizer<torch::optim::SGD>& optimizer,
                     const torch::Tensor& loss) {
  {
    auto pause = optimizer.no_sync();
    loss.backward();
  }
  optimizer.synchronize();
}

void scaled(const torch::Tensor& loss, std::int64_t rows, double rows_of_all_ranks) {
  (loss * rows * hvd::size() / rows_of_all_ranks).backward();
}

torch::Tensor mean_loss_of(Net& model, const std::vector<std::size_t>& examples);
void note(double loss);
void to_the_bit(Net& model, std::size_t dataset_size, int epoch, int epochs,
                const std::string& path) {
#include "elastic_3.inc"
  at::globalContext().setDeterministicAlgorithms(true, false);
  hvd::save_checkpoint(path, model, optimizer, sampler);
}

void repeat(hvd::DistributedSampler& sampler, std::size_t epoch, std::uint64_t seed) {
  sampler.set_epoch(epoch);
  torch::manual_seed(seed + hvd::rank());
}

void unshuffled(std::size_t size) { hvd::DistributedSampler sampler(size, {.shuffle = false}); }

void uneven(Net& model, torch::optim::SGD& optimizer) {
  const int last = hvd::join();
  hvd::broadcast_parameters(model, last);
  hvd::broadcast_optimizer_state(optimizer, last);
  hvd::join({.average_over_contributors = true});
}

void collectives(const torch::Tensor& x, const torch::Tensor& sparse, const torch::Tensor& a,
                 const torch::Tensor& b, const std::vector<std::int64_t>& splits,
                 std::vector<float>& values) {
  auto y = hvd::allreduce(x);
  hvd::allreduce_(x, {.name = "x", .op = hvd::ReduceOp::sum});
  auto most = hvd::allreduce(x, {.op = hvd::ReduceOp::max});
  auto scaled = hvd::allreduce(x, {.prescale = 0.5, .postscale = 2});
  auto half = hvd::allreduce(x, {}, hvd::Compression::fp16);
  auto all = hvd::allgather(x);
  auto copy = hvd::broadcast(x, 0);
  hvd::broadcast_(x, 0);
  auto mine = hvd::reducescatter(x);
  auto [rows, received] = hvd::alltoall(x, splits);
  auto sum = hvd::sparse_allreduce(sparse, {.op = hvd::ReduceOp::sum});
  auto both = hvd::grouped_allreduce({a, b});
  auto gathered = hvd::grouped_allgather({a, b});
  auto parts = hvd::grouped_reducescatter({a, b});
  hvd::barrier();
  hvd::send(std::span(values), 1);
  hvd::recv(std::span(values), 0);
  hvd::allreduce(std::span(values));
}

bool asynchronous(const torch::Tensor& x) {
  hvd::TensorWork work = hvd::allreduce_async(x);
  torch::Tensor result = work.wait();
  return work.done() && work.wait_until(hvd::Clock::now() + std::chrono::seconds(5));
}

void process_sets(const torch::Tensor& x) {
  const hvd::ProcessSet even = hvd::add_process_set({0, 2});
  auto z = hvd::allreduce(x, {.process_set = even.id});
  hvd::remove_process_set(even);
}

void layers(const torch::nn::Sequential& net, torch::optim::SGD& sgd) {
  hvd::SyncBatchNorm norm(torch::nn::BatchNormOptions(64));
  auto converted = hvd::convert_sync_batch_norm(net);
  hvd::WarmupLR warmup(sgd, 500, 1.0 / hvd::size());
}

void precision(hvd::DistributedOptimizer<>& optimizer, const torch::Tensor& loss) {
  hvd::GradScaler scaler;
  scaler.scale(loss).backward();
  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.update();
}

double metrics(double value, double batch_size) {
  const double loss = hvd::average_metric(value, "loss");
  hvd::Metric metric("loss");
  metric.update(value, batch_size);
  const double mean = metric.average();
  return loss + mean;
}

void checkpoints(Net& model, torch::optim::SGD& sgd, hvd::DistributedSampler& sampler) {
  hvd::save_checkpoint("model.pt", model, sgd, sampler);
  hvd::load_checkpoint("model.pt", model, sgd, sampler);
}

void resume(Net& model, torch::optim::SGD& optimizer, hvd::DistributedSampler& sampler) {
#include "checkpoints_1.inc"
#include "checkpoints_2.inc"
}

void train_one_batch();
void stop(Net& model, torch::optim::SGD& optimizer, hvd::DistributedSampler& sampler, int step,
          int steps) {
#include "checkpoints_3.inc"
}
void stop_uneven(int batches) {
#include "checkpoints_4.inc"
}

void reference(const torch::Tensor& loss, const torch::Tensor& t, const torch::Tensor& features,
               const torch::Tensor& labels, const hvd::ProcessSet& set) {
#include "torch_1.inc"
}

void weigh(Net& model, const std::vector<std::pair<torch::Tensor, torch::Tensor>>& batches) {
#include "torch_2.inc"
}

void own_compressor(Net& model, torch::optim::SGD& sgd) {
#include "torch_3.inc"
}

void save_all(Net& model, torch::optim::Optimizer& optimizer, hvd::DistributedSampler& sampler) {
#include "torch_4.inc"
}

void train(Net& model, torch::optim::Optimizer& optimizer, hvd::DistributedSampler& sampler);

void ranks_as_threads(std::size_t dataset_size) {
#include "ranks_as_threads_1.inc"
}

void random_numbers_of_a_rank(std::uint64_t seed) {
#include "ranks_as_threads_2.inc"
  noise.zero_();
}

void on_another_thread(hvd::Context& context) { hvd::barrier({.context = &context}); }

hvd::DistributedOptimizerOptions own_context(hvd::Context& own) { return {.context = &own}; }

void scaled(hvd::GradScaler& scaler, hvd::DistributedOptimizer<>& optimizer,
            const torch::Tensor& loss) {
  scaler.scale(loss).backward();
  scaler.step(optimizer);
  scaler.update();
}

using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

void on_memory(Floats& gradient, const Floats& mine, const Integers& keys, const Integers& counts){
#include "engine_1.inc"
}

std::uint64_t observe() {
  hvd::start_timeline("t.json");
  hvd::stop_timeline();
  const hvd::Stats stats = hvd::stats();
  return stats.step.count;
}

}  // namespace guide
