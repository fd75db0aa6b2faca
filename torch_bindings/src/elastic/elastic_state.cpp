#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/internal/recovery.hpp>
#include <hvd/core/log.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/elastic.hpp>
#include <hvd/torch/exact_optimizer.hpp>
#include <hvd/torch/object.hpp>
#include <hvd/torch/optimizer_state.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "collectives/archive_bytes.hpp"
#include "elastic/mirrored_shards.hpp"
#include "elastic/state_parts.hpp"
#include "state/optimizer_fields.hpp"

namespace hvd {

using namespace detail;

namespace {

constexpr std::int64_t kLargestState = std::int64_t{1} << 40;  // bytes

std::vector<Standing> gather(Context& context, const Standing& mine) {
  const torch::Tensor row =
      torch::tensor({mine.kind, mine.certain, mine.steps, mine.iterations, mine.commits})
          .view({1, -1});
  const torch::Tensor all = allgather(row, {.name = "elastic_state/standing", .context = &context});
  const auto rows = all.accessor<std::int64_t, 2>();
  std::vector<Standing> standings;
  for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto fields = rows[rank];
    standings.push_back({fields[0], fields[1], fields[2], fields[3], fields[4]});
  }
  return standings;
}

}  // namespace

struct ElasticState::Impl {
  StateParts parts;
  MirroredShards mirrored{parts};
  StateSnapshot snapshot;  ///< of the last end of an iteration
  StateCopy copy;          ///< of the last commit; valid if `standing.commits` is not 0
  Standing standing;       ///< `certain` and `steps` are those of the end of the last generation
  std::int64_t earlier_steps = 0;  ///< those that no optimizer of this process has counted
  std::int64_t steps_at_end = 0;   ///< those at the last end of an iteration
  bool is_exact = false;           ///< there is an ExactOptimizer
  /// The program has called `end_step`, so that the snapshot is not older than one iteration.
  bool ends_iterations = false;
  /// Nothing has changed since the snapshot, because the ranks have agreed to end the generation
  /// then, or because this rank is sending what it has to all others for the first time.
  bool nothing_since = false;
  bool reset_is_due = false;

  [[nodiscard]] std::int64_t steps() const { return earlier_steps + parts.completed_steps(); }
  void end_iteration() {
    ++standing.iterations;
    steps_at_end = steps();
    snapshot.take(parts);
  }
  void commit(std::int64_t number) {
    copy.take(parts);
    standing.commits = number;
  }
  void go_back(const std::vector<Standing>& all, const StateSource& source, Context& context);
  void receive(const StateSource& source, Context& context);
  void begin_generation();
};

/// Puts this rank's own parts back to where they were, if the source is there too.
void ElasticState::Impl::go_back(const std::vector<Standing>& all, const StateSource& source,
                                 Context& context) {
  const Standing& best = all[static_cast<std::size_t>(source.rank)];
  const bool is_source = context.rank() == source.rank;
  const bool is_there = source.from_commit ? standing.commits == best.commits : standing == best;
  const bool is_untrained = best.steps == 0 && best.iterations == 0 && best.commits == 0;
  if (is_there && source.from_commit) {
    copy.put_back(parts, context);
    snapshot.take(parts);
  } else if (is_there && standing.kind == Standing::whole) {
    snapshot.put_back(parts);
    snapshot.put_back_random();
  } else if (is_source) {
    // In the first generation this rank has what all start with, also if another one is lost now.
    snapshot.take(parts);
    standing.kind = Standing::whole;
    nothing_since = true;
  } else if (!is_untrained) {
    standing.kind = Standing::damaged;  // otherwise all that comes is what some program has made
  }
}

/// Gives all ranks what the source has.
void ElasticState::Impl::receive(const StateSource& source, Context& context) {
  const bool sends = context.rank() == source.rank;
  std::vector<NamedTensors::Item> tensors = parts.parameters().items();
  for (auto& [name, tensor] : parts.buffers().items()) {
    tensors.emplace_back("buffer " + name, tensor);
  }
  broadcast_tensors(context, std::move(tensors), "elastic_state/", source.rank);
  for (torch::Tensor* const tensor : parts.tensors) {
    broadcast_object_(
        *tensor, source.rank,
        {.name = "elastic_state/tensor", .max_bytes = kLargestState, .context = &context});
  }
  for (std::size_t i = 0; i < parts.optimizers.size(); ++i) {
    torch::optim::Optimizer& optimizer = *parts.optimizers[i];
    if (!is_divided(optimizer)) {
      broadcast_optimizer_state(optimizer, source.rank, context);
      continue;
    }
    // Without a commit the optimizer has not begun.
    const Bytes state = broadcast_object(
        sends && source.from_commit ? copy.optimizers[i].fields : Bytes(), source.rank,
        {.name = "elastic_state/divided", .max_bytes = kLargestState, .context = &context});
    if (!sends && !state.empty()) restore_divided(optimizer, state);
  }
  WireWriter writer;
  if (sends) {
    writer.i64(standing.steps);
    writer.i64(standing.iterations);
    writer.u8(ends_iterations ? 1 : 0);
    snapshot.write_values(writer, parts);
  }
  const Bytes values = broadcast_object(
      writer.take(), source.rank,
      {.name = "elastic_state/values", .max_bytes = kLargestState, .context = &context});
  WireReader reader(values, "ElasticState");
  standing.steps = reader.i64();
  standing.iterations = reader.i64();
  ends_iterations = reader.u8() != 0;
  StateSnapshot::read_values(reader, parts, context);
  reader.finish();
}

void ElasticState::Impl::begin_generation() {
  for (torch::nn::Module* const module : parts.modules) module->zero_grad();
  for (auto* const optimizer : parts.optimizers) {
    optimizer->zero_grad();
    if (auto* const counter = dynamic_cast<CountsSteps*>(optimizer)) {
      counter->step_count().underway = false;
    }
  }
  earlier_steps = standing.steps - parts.completed_steps();
  steps_at_end = standing.steps;
  standing.kind = Standing::whole;
  standing.certain = 1;
  snapshot.take(parts);
}

ElasticState::ElasticState() : impl_(std::make_unique<Impl>()) {}

ElasticState::~ElasticState() {
  for (ElasticSampler* const sampler : impl_->parts.samplers) {
    SamplerProgress::on_record(*sampler, nullptr);
  }
}

void ElasticState::add_module(torch::nn::Module& module) {
  impl_->parts.modules.push_back(&module);
}

void ElasticState::add_optimizer(torch::optim::Optimizer& optimizer) {
  if (optimizer_code(unwrapped(optimizer)) < 0) {
    throw Error(Errc::unsupported,
                "ElasticState: the state of an optimizer whose class is not one of LibTorch's "
                "cannot be sent to another rank");
  }
  impl_->parts.optimizers.push_back(&optimizer);
  if (auto* const exact = dynamic_cast<ExactOptimizer*>(&optimizer)) {
    impl_->is_exact = true;
    add(exact->progress().steps);
    add(exact->progress().threads);
    add(exact->progress().buffers);
  }
}

void ElasticState::add_scheduler(torch::optim::LRScheduler& scheduler) {
  struct Counted : torch::optim::LRScheduler {
    static unsigned& count_of(torch::optim::LRScheduler& of) { return of.*&Counted::step_count_; }
  };
  add(Counted::count_of(scheduler));
}

void ElasticState::add_sampler(ElasticSampler& sampler) {
  impl_->parts.samplers.push_back(&sampler);
  SamplerProgress::on_record(sampler, [this] { end_step(); });
}

void ElasticState::add_tensor(torch::Tensor& tensor) { impl_->parts.tensors.push_back(&tensor); }

void ElasticState::add_value(Read read, Write write) {
  impl_->parts.values.push_back({std::move(read), std::move(write)});
}

void ElasticState::add_saved(std::function<void(torch::serialize::OutputArchive&)> save,
                             std::function<void(torch::serialize::InputArchive&)> load) {
  add_value(
      [save = std::move(save)] {
        torch::serialize::OutputArchive archive;
        save(archive);
        const Bytes bytes = bytes_of(archive);
        return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      [load = std::move(load)](const std::string& bytes) {
        auto archive = archive_of(std::as_bytes(std::span(bytes)), "a part of an ElasticState");
        load(archive);
      });
}

void ElasticState::end_step() {
  if (elastic::active()) {
    impl_->ends_iterations = true;
    impl_->end_iteration();
  }
  elastic::check_host_updates();
}

void ElasticState::commit() {
  impl_->commit(impl_->standing.commits + 1);
  if (is_initialized()) elastic::check_host_updates();
}

void ElasticState::restore() {
  if (impl_->standing.commits == 0) {
    throw Error(Errc::invalid_argument, "ElasticState: restore() without a commit()");
  }
  impl_->copy.put_back(impl_->parts, context());
  impl_->end_iteration();  // a rank that has not come so far, when one is lost, gets it from others
}

void ElasticState::reset() { impl_->reset_is_due = true; }

void ElasticState::change_agreed() {
  Impl& impl = *impl_;
  if (impl.parts.has_divided()) {
    // All ranks that have a shard may leave.
    const bool is_first = impl.standing.commits == 0;
    impl.commit(impl.standing.commits + 1);
    if (impl.parts.has_unmirrored()) return;
    if (is_first) impl.mirrored.commit_is_temporary();
  }
  impl.snapshot.take(impl.parts);
  impl.nothing_since = true;
}

void ElasticState::generation_ended() noexcept {
  Impl& impl = *impl_;
  if (impl.standing.kind != Standing::whole) return;
  impl.standing.steps = impl.steps();
  // A program that commits and ends no iterations goes back to its commits, as with Horovod.
  const bool only_commits = impl.standing.commits > 0 && !impl.ends_iterations;
  impl.standing.certain = impl.nothing_since || (impl.parts.certain() && !only_commits) ? 1 : 0;
  if (impl.is_exact && !impl.nothing_since && impl.standing.steps != impl.steps_at_end) {
    // The batch of this step would be used again. A rank that has not made the step, or has ended
    // its iteration, is at a place where it is used once.
    impl.standing.certain = 0;
    log(LogLevel::warn, -1,
        "ElasticState: a rank was lost between step() and the end of the iteration, where an "
        "ExactOptimizer allows no communication");
  }
}

void ElasticState::synchronize(Context& context) {
  Impl& impl = *impl_;
  if (!impl.parts.has_all_parameters()) {
    throw Error(Errc::invalid_argument,
                "ElasticState: an optimizer has a parameter of a module that was not added");
  }
  std::vector<Standing> all = gather(context, impl.standing);
  const auto is_fresh = [](const Standing& one) { return one.kind == Standing::fresh; };
  if (std::any_of(all.begin(), all.end(), is_fresh)) {
    const std::string difference =
        first_difference(context, impl.parts.describe(), "elastic_state/parts");
    if (!difference.empty()) {
      throw Error(Errc::mismatch, fmt::format("ElasticState: {}", difference));
    }
  }
  const std::vector<Divisions> divisions = impl.mirrored.gather(context);
  const StateSource source = choose_source(all, divisions);
  impl.mirrored.go_on_with(source);
  if (!source.from_commit) {
    impl.standing.steps = all[static_cast<std::size_t>(context.rank())].steps;
  } else if (source.shards_lost && context.rank() == 0 && !impl.nothing_since) {
    log(LogLevel::warn, 0,
        "ElasticState: a rank was lost together with the next one, which had the mirror of its "
        "shards, so training goes back to the last commit()");
  }
  const Standing best = all[static_cast<std::size_t>(source.rank)];
  const std::string uncertain = impl.parts.why_uncertain();
  if (std::all_of(all.begin(), all.end(), is_fresh) && context.rank() == 0 && !uncertain.empty() &&
      elastic::active()) {
    log(LogLevel::warn, 0,
        fmt::format("ElasticState: when a rank is lost, training goes back to the last commit(), "
                    "because {}",
                    uncertain));
  }
  impl.go_back(all, source, context);
  if (std::exchange(impl.reset_is_due, false)) call_reset_callbacks();
  const bool all_have_it =
      !source.from_commit && best.kind == Standing::whole &&
      std::all_of(all.begin(), all.end(), [&best](const Standing& one) { return one == best; });
  if (all_have_it) {
    // Samplers divide the rest among other ranks now.
    WireWriter writer;
    impl.snapshot.write_values(writer, impl.parts);
    const Bytes values = writer.take();
    WireReader reader(values, "ElasticState");
    StateSnapshot::read_values(reader, impl.parts, context);
    broadcast_tensors(context, impl.parts.parameters_without_optimizer(), "elastic_state/",
                      source.rank);
  } else {
    impl.receive(source, context);
    log(LogLevel::info, context.rank(),
        source.from_commit
            ? fmt::format("ElasticState: goes back to the last commit of rank {}", source.rank)
            : fmt::format("ElasticState: goes on after step {} of rank {}", impl.standing.steps,
                          source.rank));
  }
  impl.mirrored.assemble(context, source);
  impl.begin_generation();
  impl.mirrored.begin(source);
  const auto most = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.commits < b.commits; });
  if (impl.mirrored.take_temporary_commit()) {
    impl.copy = {};
    impl.standing.commits = 0;
  } else if (most->commits > 0 || (!uncertain.empty() && elastic::active())) {
    impl.commit(most->commits + 1);
  }
  impl.nothing_since = false;
}

}  // namespace hvd
