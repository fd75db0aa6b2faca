#include "elastic/mirrored_shards.hpp"

#include <algorithm>
#include <utility>

#include <hvd/torch/collectives.hpp>

#include "sharded/shard_mirror.hpp"

namespace hvd::detail {
namespace {

constexpr std::int64_t kMostHeld = 2;  ///< the division of a generation and the one before

}  // namespace

bool MirroredShards::take_temporary_commit() noexcept {
  return std::exchange(temporary_commit_, false);
}

std::vector<ShardMirror*> MirroredShards::mirrors() const {
  std::vector<ShardMirror*> all;
  for (torch::optim::Optimizer* const optimizer : parts_.optimizers) {
    if (ShardMirror* const mirror = mirror_of(*optimizer)) all.push_back(mirror);
  }
  return all;
}

/// Returns what all optimizers have. Of a step of several optimizers, one may be pending.
Divisions MirroredShards::held() const {
  Divisions common;
  const std::vector<ShardMirror*> all = mirrors();
  for (const Division& one : all.front()->held()) {
    Division sum = one;
    const bool all_have_it = std::all_of(all.begin() + 1, all.end(), [&](const auto* mirror) {
      for (const Division& other : mirror->held()) {
        if (other.number != one.number) continue;
        sum.steps += other.steps;
        sum.pending += other.pending;
        return true;
      }
      return false;
    });
    if (all_have_it) common.push_back(sum);
  }
  return common;
}

std::vector<Divisions> MirroredShards::gather(Context& context) {
  std::vector<Divisions> all(static_cast<std::size_t>(context.size()));
  if (mirrors().empty()) return all;
  std::vector<std::int64_t> mine{newest_, temporary_commit_ ? 1 : 0};
  Divisions divisions = held();
  divisions.resize(kMostHeld);
  for (const Division& one : divisions) {
    mine.insert(mine.end(), {one.number, one.rank, one.ranks, one.steps, one.pending});
  }
  const torch::Tensor gathered = allgather(
      torch::tensor(mine).view({1, -1}), {.name = "elastic_state/divisions", .context = &context});
  const auto rows = gathered.accessor<std::int64_t, 2>();
  for (std::int64_t rank = 0; rank < gathered.size(0); ++rank) {
    const auto row = rows[rank];
    newest_ = std::max(newest_, row[0]);
    temporary_commit_ = temporary_commit_ || row[1] != 0;
    for (std::int64_t i = 2; i < row.size(0); i += 5) {
      if (row[i] == 0) continue;
      all[static_cast<std::size_t>(rank)].push_back(
          {row[i], row[i + 1], row[i + 2], row[i + 3], row[i + 4]});
    }
  }
  return all;
}

void MirroredShards::go_on_with(const StateSource& source) {
  const std::vector<ShardMirror*> all = mirrors();
  if (all.empty()) return;
  const std::int64_t division = source.from_commit ? 0 : source.division;
  bool is_behind = false;
  for (const Division& one : held()) {
    if (one.number == division) is_behind = one.steps < source.division_steps;
  }
  for (ShardMirror* const mirror : all) mirror->go_on_with(division, is_behind);
}

void MirroredShards::assemble(Context& context, const StateSource& source) {
  if (source.from_commit || source.division == 0) return;
  for (ShardMirror* const mirror : mirrors()) mirror->assemble(context, source.shards);
}

void MirroredShards::begin(const StateSource& source) {
  const bool of_nothing = !source.from_commit && source.division == 0;
  newest_ = of_nothing ? 1 : newest_ + 1;
  for (ShardMirror* const mirror : mirrors()) mirror->begin(newest_);
}

}  // namespace hvd::detail
