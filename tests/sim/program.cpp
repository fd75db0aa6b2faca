#include "program.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace hvd::sim {
namespace {

constexpr std::array<std::string_view, kTraitCount> kNames{"swap",
                                                           "skip",
                                                           "repeat",
                                                           "insert",
                                                           "insert everywhere",
                                                           "duplicate",
                                                           "shape everywhere",
                                                           "mismatch",
                                                           "metric",
                                                           "unnamed",
                                                           "group",
                                                           "split group",
                                                           "group differs",
                                                           "sets",
                                                           "set removed",
                                                           "join",
                                                           "join with pending",
                                                           "varying rows",
                                                           "alltoall",
                                                           "broadcast",
                                                           "long compute",
                                                           "alternating steps",
                                                           "two threads",
                                                           "early shutdown",
                                                           "steady"};

Operation allreduce(std::string name, std::int64_t elements) {
  Operation operation;
  operation.request.name = std::move(name);
  operation.request.shape = {elements};
  return operation;
}

/// Draws one script. The loop over steps is the same on all ranks; what differs is drawn per rank.
class Writer {
 public:
  Writer(Random& random, const ScriptOptions& options) : random_(random), options_(options) {
    script_.ranks = options.ranks;
  }

  Script write() {
    settings();
    layers();
    if (!options_.steady) divergences();
    script_.programs.resize(static_cast<std::size_t>(script_.ranks));
    for (int rank = 0; rank < script_.ranks; ++rank) {
      rank_ = rank;
      script_.programs[static_cast<std::size_t>(rank)] = program();
    }
    return std::move(script_);
  }

 private:
  void mark(Trait trait) { script_.traits[static_cast<std::size_t>(trait)] = true; }
  [[nodiscard]] bool has(Trait trait) const { return script_.has(trait); }
  int any_rank() { return random_.number(0, script_.ranks - 1); }
  int any_layer() { return random_.number(0, static_cast<int>(steps_of_[0].size()) - 1); }
  int any_step() { return random_.number(1, steps_ - 1); }

  void settings() {
    script_.freeze_after = random_.chance(8) ? 0 : random_.number(1, 3);
    script_.fusion_threshold =
        random_.chance(15) ? 0 : static_cast<std::size_t>(random_.spread(64, 1 << 14));
    steps_ = random_.number(3, script_.ranks > 6 ? 6 : 9);
    if (options_.steady) {
      script_.freeze_after = random_.number(1, 2);
      steps_ = std::max(steps_, script_.freeze_after + 4);
      mark(Trait::steady);
    }
    if (options_.somebody_lacks) steps_ = std::max(steps_, 3);
  }

  void layers() {
    const int count = random_.number(1, script_.ranks > 6 ? 4 : 6);
    const bool alternating = random_.chance(12);
    if (alternating) mark(Trait::alternating);
    for (int variant = 0; variant < (alternating ? 2 : 1); ++variant) {
      std::vector<Operation>& step = steps_of_[static_cast<std::size_t>(variant)];
      for (int i = 0; i < count; ++i) {
        Operation operation =
            allreduce(fmt::format("{}{}", variant == 0 ? "g" : "d", i), random_.spread(1, 2000));
        Request& request = operation.request;
        if (random_.chance(15)) request.dtype = DType::f64;
        if (random_.chance(8)) request.op = ReduceOp::max;
        if (random_.chance(5)) {
          request.kind = OpKind::broadcast;
          request.op = ReduceOp::sum;
          request.root = any_rank();
          mark(Trait::broadcast);
        } else if (random_.chance(5)) {
          request.kind = OpKind::allgather;
          request.op = ReduceOp::sum;
          request.shape = {random_.between(0, 5), 3};
        }
        step.push_back(std::move(operation));
      }
    }
    if (!alternating) steps_of_[1] = steps_of_[0];
    if (!options_.steady && !options_.somebody_lacks && !alternating && count >= 2 &&
        random_.chance(20))
      group_layers();
    script_.steady = options_.steady;
    script_.must_freeze = options_.steady && steps_ >= 2 * (script_.freeze_after + 1) + 2;
  }

  void group_layers() {
    mark(Trait::group);
    // A group of several dtypes does not fit into one bucket.
    group_size_ = random_.number(2, static_cast<int>(steps_of_[0].size()));
    if (random_.chance(60)) {
      mark(Trait::split_group);
      for (int i = 0; i < group_size_; ++i) {
        steps_of_[0][static_cast<std::size_t>(i)].request.dtype =
            i % 2 == 0 ? DType::f32 : DType::f64;
      }
    }
    for (int i = 0; i < group_size_; ++i) {
      Request& request = steps_of_[0][static_cast<std::size_t>(i)].request;
      request.group = "group";
      request.group_size = group_size_;
    }
    steps_of_[1] = steps_of_[0];
  }

  void divergences() {
    if (options_.somebody_lacks) {
      script_.never_submits = any_rank();
      lacks_step_ = any_step();
      lacks_step_ = std::min(lacks_step_, steps_ - 2);
      lacks_layer_ = any_layer();
      return;
    }
    const auto maybe = [&](Trait trait, int percent) {
      if (random_.chance(percent)) mark(trait);
      return has(trait);
    };
    odd_rank_ = any_rank();
    if (maybe(Trait::join, 10)) {
      over_contributors_ = random_.chance(50);
      eras_ = random_.number(1, 2);
      maybe(Trait::join_pending, 50);
    } else {
      if (maybe(Trait::sets, 18)) {
        const int sets = random_.number(1, 3);
        for (int i = 0; i < sets; ++i) sets_.push_back(subset());
        if (maybe(Trait::set_removed, 40)) remove_at_ = any_step();
        remove_pending_ = random_.chance(60);
        remove_orphans_ = random_.chance(50);
      }
      // The others must reach the repeated operation without another operation of this rank.
      if (!has(Trait::alternating) && remove_at_ < 0 && maybe(Trait::repeat, 8))
        event(repeat_at_, repeat_layer_);
      if (maybe(Trait::alltoall, 6)) alltoall_ = true;
      if (maybe(Trait::early_shutdown, 8)) shutdown_at_ = any_step();
      if (maybe(Trait::threads, 12)) second_thread_ = random_.number(1, 3);
    }
    if (maybe(Trait::swap, 30)) shuffled_ = true;
    if (maybe(Trait::skip, 15)) event(skip_at_, skip_layer_);
    if (maybe(Trait::insert, 8)) insert_at_ = any_step();
    if (maybe(Trait::insert_everywhere, 15)) insert_everywhere_at_ = any_step();
    if (!has(Trait::alternating) && remove_at_ < 0 && maybe(Trait::duplicate, 8))
      event(duplicate_at_, duplicate_layer_);
    if (maybe(Trait::shape_everywhere, 8)) event(shape_at_, shape_layer_);
    if (maybe(Trait::mismatch, 10)) event(mismatch_at_, mismatch_layer_);
    if (maybe(Trait::metric, 15)) metric_every_ = random_.number(2, 4);
    if (maybe(Trait::unnamed, 6)) unnamed_ = true;
    if (maybe(Trait::rows, 5)) varying_rows_ = true;
    if (maybe(Trait::long_compute, 8)) compute_at_ = any_step();
    if (has(Trait::group) && maybe(Trait::group_differs, 40)) {
      group_differs_at_ = any_step();
      group_difference_ = random_.number(-1, 1);
    }
  }

  void event(int& step, int& layer) {
    step = any_step();
    layer = any_layer();
  }

  std::vector<int> subset() {
    std::vector<int> ranks;
    for (int rank = 0; rank < script_.ranks; ++rank) {
      if (random_.chance(60)) ranks.push_back(rank);
    }
    if (ranks.empty()) ranks.push_back(any_rank());
    return ranks;
  }

  // --- one rank's program ---

  RankProgram program() {
    RankProgram program;
    acts_.clear();
    for (std::size_t slot = 0; slot < sets_.size(); ++slot) {
      Act& act = add(Act::Kind::add_set);
      act.slot = static_cast<int>(slot);
      act.ranks = sets_[slot];
    }
    bool removed = false;
    for (int era = 0; era < std::max(eras_, 1); ++era) {
      const int steps = has(Trait::join) ? random_.number(1, steps_) : steps_;
      for (int step = 0; step < steps; ++step) {
        if (step == shutdown_at_ && rank_ == odd_rank_) break;
        if (step == remove_at_) remove_set(std::exchange(removed, true));
        const bool last = step + 1 == steps;
        one_step(era, step, removed, last && has(Trait::join_pending));
      }
      if (!has(Trait::join)) continue;
      add(Act::Kind::join).over_contributors = over_contributors_;
      add(Act::Kind::wait_all);
    }
    program.threads.push_back(std::move(acts_));
    if (second_thread_ > 0) program.threads.push_back(other_thread());
    program.linger = random_.chance(20) ? random_.spread(kMilli, 300 * kMilli) : 0;
    return program;
  }

  Act& add(Act::Kind kind) {
    acts_.emplace_back().kind = kind;
    return acts_.back();
  }
  void submit(Operation operation) { add(Act::Kind::submit).operations = {std::move(operation)}; }
  void compute(Nanos low, Nanos high) {
    add(Act::Kind::compute).duration = random_.spread(low, high);
  }

  void remove_set(bool removed) {
    if (removed) return;
    const auto& ranks = sets_.front();
    const bool member = std::binary_search(ranks.begin(), ranks.end(), rank_);
    const bool lacks = remove_orphans_ && rank_ == odd_rank_;
    if (member && remove_pending_ && !lacks) {
      Operation operation = allreduce("pending at removal", 3);
      operation.slot = 0;
      submit(std::move(operation));
    }
    add(Act::Kind::remove_set).slot = 0;
  }

  void one_step(int era, int step, bool removed, bool leave_pending) {
    std::vector<Operation> operations = steps_of_[static_cast<std::size_t>(step % 2)];
    const bool odd = rank_ == odd_rank_;
    for (std::size_t i = 0; i < operations.size(); ++i)
      vary(operations[i].request, static_cast<int>(i), step);
    if (odd && step == group_differs_at_) change_group(operations);
    if (step == insert_everywhere_at_)
      operations.push_back(allreduce("inserted", operations.front().request.shape.front() + 1));
    if (metric_every_ > 0 && step % metric_every_ == metric_every_ - 1)
      operations.push_back(allreduce("metric", 1));
    if (unnamed_) operations.push_back(allreduce(fmt::format("allreduce.unnamed.{}", step), 4));
    for (std::size_t slot = 0; slot < sets_.size(); ++slot) {
      if (removed && slot == 0) continue;
      const auto& ranks = sets_[slot];
      if (!std::binary_search(ranks.begin(), ranks.end(), rank_)) continue;
      for (int i = 0; i <= static_cast<int>(slot % 2); ++i) {
        Operation operation = allreduce(fmt::format("s{}", i), 5 + i);
        operation.slot = static_cast<int>(slot);
        operations.push_back(std::move(operation));
      }
    }
    if (alltoall_) operations.push_back(alltoall());
    std::vector<std::vector<Operation>> units = in_units(std::move(operations));
    if (shuffled_ || script_.steady || random_.chance(10)) random_.shuffle(units);

    std::vector<Operation> late;
    for (auto& unit : units) {
      const int layer = layer_of(unit.front());
      if (script_.never_submits == rank_ && step == lacks_step_ && layer == lacks_layer_) continue;
      if (odd && step == skip_at_ && layer == skip_layer_ && unit.size() == 1) {
        late = unit;
        continue;
      }
      if (random_.chance(script_.steady ? 30 : 40))
        compute(10 * kMicro, script_.steady ? kMilli : 8 * kMilli);
      const Operation first = unit.front();
      add(Act::Kind::submit).operations = std::move(unit);
      if (odd && step == duplicate_at_ && layer == duplicate_layer_ &&
          first.request.group.empty()) {
        submit(first);
        acts_.back().while_pending = true;
      }
    }
    if (odd && step == insert_at_) {
      submit(allreduce(fmt::format("only here {}", era), 4));
      add(Act::Kind::forget_last);
    }
    if (step == compute_at_ && odd) compute(300 * kMilli, 3 * kSecond);
    if (!late.empty()) {
      // Runs after everything else of the step, sometimes with a delay.
      const bool ahead = has(Trait::repeat) || has(Trait::duplicate);  // the others wait
      if (!ahead && random_.chance(70)) add(Act::Kind::wait_all);
      if (random_.chance(20)) compute(kMilli, 300 * kMilli);
      submit(late.front());
    }
    if (leave_pending) return;
    add(Act::Kind::wait_all);
    // The others wait for this operation only, because this rank does not come to the next step
    // either.
    if (script_.never_submits == rank_ && step == lacks_step_) compute(20 * kSecond, 30 * kSecond);
    if (odd && step == repeat_at_) {
      Operation again =
          steps_of_[static_cast<std::size_t>(step % 2)][static_cast<std::size_t>(repeat_layer_)];
      if (again.request.group.empty()) {
        submit(again);
        add(Act::Kind::wait_all);
      }
    }
    if (random_.chance(50)) compute(100 * kMicro, 20 * kMilli);
  }

  void vary(Request& request, int layer, int step) {
    if (shape_at_ >= 0 && step >= shape_at_ && layer == shape_layer_ &&
        request.kind == OpKind::allreduce)
      request.shape.front() += 7;
    if (step == mismatch_at_ && layer == mismatch_layer_ && rank_ == odd_rank_ &&
        request.kind == OpKind::allreduce) {
      request.shape.front() += 1;
    }
    if (request.kind != OpKind::allgather) return;
    request.shape.front() += rank_;
    if (varying_rows_) request.shape.front() += random_.number(0, 2);
  }

  /// Gives the group one member less or more than on the other ranks, or exchanges one.
  void change_group(std::vector<Operation>& operations) const {
    const auto in_group = [](const Operation& operation) {
      return !operation.request.group.empty();
    };
    Operation other = *std::find_if(operations.begin(), operations.end(), in_group);
    other.request.name = "only in this group";
    if (group_difference_ <= 0) {
      operations.erase(std::find_if(operations.begin(), operations.end(), in_group));
    }
    if (group_difference_ >= 0) operations.push_back(std::move(other));
    for (Operation& operation : operations) {
      if (in_group(operation)) operation.request.group_size += group_difference_;
    }
  }

  Operation alltoall() {
    Operation operation = allreduce("alltoall", 0);
    operation.request.kind = OpKind::alltoall;
    for (int i = 0; i < script_.ranks; ++i)
      operation.request.splits.push_back(random_.number(0, 3));
    operation.request.shape = {std::accumulate(operation.request.splits.begin(),
                                               operation.request.splits.end(), std::int64_t{0})};
    return operation;
  }

  [[nodiscard]] int layer_of(const Operation& operation) const {
    for (const auto& step : steps_of_) {
      for (std::size_t i = 0; i < step.size(); ++i) {
        if (operation.slot < 0 && step[i].request.name == operation.request.name)
          return static_cast<int>(i);
      }
    }
    return -1;
  }

  /// Splits operations into units that are submitted together: a group, or a single operation.
  static std::vector<std::vector<Operation>> in_units(std::vector<Operation> operations) {
    std::vector<std::vector<Operation>> units;
    std::vector<Operation> group;
    for (Operation& operation : operations) {
      if (operation.request.group.empty()) {
        units.push_back({std::move(operation)});
      } else {
        group.push_back(std::move(operation));
      }
    }
    if (!group.empty()) units.push_back(std::move(group));
    return units;
  }

  std::vector<Act> other_thread() {
    acts_.clear();
    for (int step = 0; step < steps_; ++step) {
      for (int i = 0; i < second_thread_; ++i) {
        submit(allreduce(fmt::format("t{}", i), 6));
        if (random_.chance(30)) compute(10 * kMicro, 5 * kMilli);
      }
      add(Act::Kind::wait_all);
      if (random_.chance(30)) compute(100 * kMicro, 20 * kMilli);
    }
    return std::move(acts_);
  }

  Random& random_;
  const ScriptOptions options_;
  Script script_;
  int rank_ = 0;
  std::vector<Act> acts_;

  int steps_ = 0;
  std::array<std::vector<Operation>, 2> steps_of_;  // even and odd steps
  int group_size_ = 0;
  int group_differs_at_ = -1;
  int group_difference_ = 0;  // additional members on the odd rank
  std::vector<std::vector<int>> sets_;
  int odd_rank_ = -1;
  int eras_ = 1;
  int second_thread_ = 0;
  int metric_every_ = 0;
  bool shuffled_ = false;
  bool over_contributors_ = false;
  bool alltoall_ = false;
  bool unnamed_ = false;
  bool varying_rows_ = false;
  bool remove_pending_ = false;
  bool remove_orphans_ = false;
  int remove_at_ = -1;
  int shutdown_at_ = -1;
  int insert_at_ = -1;
  int insert_everywhere_at_ = -1;
  int compute_at_ = -1;
  int skip_at_ = -1, skip_layer_ = -1;
  int repeat_at_ = -1, repeat_layer_ = -1;
  int duplicate_at_ = -1, duplicate_layer_ = -1;
  int shape_at_ = -1, shape_layer_ = -1;
  int mismatch_at_ = -1, mismatch_layer_ = -1;
  int lacks_step_ = -1, lacks_layer_ = -1;
};

}  // namespace

std::string_view to_string(Trait trait) noexcept { return kNames[static_cast<std::size_t>(trait)]; }

Script make_script(Random& random, const ScriptOptions& options) {
  return Writer(random, options).write();
}

}  // namespace hvd::sim
