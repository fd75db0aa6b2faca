#include "policy/schedule_learner.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace hvd::detail {
namespace {

constexpr int kMaxPatience = 63;
constexpr std::uint64_t kLasting = 2;  // after so many cycles a freeze was worth its cost

std::uint64_t fingerprint_of(const ReadyTensor& tensor) {
  return digest_of(FrozenSchedule{
      {PlannedBatch{tensor.request.process_set, {}, {tensor.request}, tensor.rows}}});
}

/// Tells whether a plan can hold this operation. It cannot hold an alltoall, whose splits are
/// negotiated each time, nor an operation that a joined rank has not submitted, in which the same
/// ranks may not take part the next time.
bool plannable(const ReadyTensor& tensor) {
  return tensor.request.kind != OpKind::alltoall && !tensor.segments.empty();
}

/// Tells whether the tensors may share a call and no rank submitted one after it saw the other's
/// result.
bool may_share_bucket(const ReadyTensor& a, const ReadyTensor& b) {
  return may_share(a, b) && a.segments == b.segments;
}

}  // namespace

std::size_t ScheduleLearner::wanted_history() const noexcept {
  return static_cast<std::size_t>(settings_.repetitions + patience_ + 1) * kMaxPeriod;
}

void ScheduleLearner::observe(std::span<const ReadyTensor> batch) {
  if (settings_.repetitions == 0) return;
  for (const ReadyTensor& tensor : batch) observe(tensor);
}

void ScheduleLearner::observe(const ReadyTensor& tensor) {
  if (!plannable(tensor)) return reset();
  if (recent_.empty()) recent_.emplace_back();
  OperationKey key = key_of(tensor.request);
  if (recent_.back().keys.count(key) > 0) {
    Round next;
    if (closed_.empty()) next = take_beginning_of_next(tensor);
    closed_.push_back(recent_.back().fingerprint);
    recent_.push_back(std::move(next));
    if (closed_.size() > wanted_history()) closed_.pop_front();
    if (recent_.size() > kMaxPeriod) recent_.pop_front();
  }
  if (recent_.back().tensors.size() == kMaxRound) return reset();
  recent_.back().add(tensor);
}

void ScheduleLearner::Round::add(const ReadyTensor& tensor) {
  keys.insert(key_of(tensor.request));
  fingerprint += fingerprint_of(tensor);
  tensors.push_back(tensor);
}

ScheduleLearner::Round ScheduleLearner::take_beginning_of_next(const ReadyTensor& first) {
  const auto& tensors = recent_.back().tensors;
  auto begin = tensors.end();
  while (begin != tensors.begin() && std::prev(begin)->segments == first.segments) --begin;
  const auto is_first = [key = key_of(first.request)](const ReadyTensor& tensor) {
    return key_of(tensor.request) == key;
  };
  if (std::any_of(begin, tensors.end(), is_first)) return {};  // `first` would end that round too
  Round ended;
  Round next;
  std::for_each(tensors.begin(), begin, [&](const ReadyTensor& tensor) { ended.add(tensor); });
  std::for_each(begin, tensors.end(), [&](const ReadyTensor& tensor) { next.add(tensor); });
  recent_.back() = std::move(ended);
  return next;
}

void ScheduleLearner::reset() {
  closed_.clear();
  recent_.clear();
}

/// Returns the shortest period of the rounds, where the open round counts as complete, or 0 when
/// there is none yet.
int ScheduleLearner::period() const {
  std::vector<std::uint64_t> rounds(closed_.begin(), closed_.end());
  rounds.push_back(recent_.back().fingerprint);
  for (int period = 1; period <= kMaxPeriod; ++period) {
    // A single round repeats nothing.
    const int repeated = std::max(settings_.repetitions + patience_ - 1, 1) * period;
    if (std::ssize(rounds) < repeated + period) break;
    const auto from = rounds.end() - repeated;
    if (std::equal(from, rounds.end(), from - period)) return period;
  }
  return 0;
}

/// Tells whether the last rounds are those that were frozen before, from the first to the last.
bool ScheduleLearner::ends_with_known() const {
  if (known_.empty()) return false;
  std::vector<std::uint64_t> rounds(closed_.begin(), closed_.end());
  rounds.push_back(recent_.back().fingerprint);
  const auto times = static_cast<std::size_t>(1 + patience_);
  if (rounds.size() < times * known_.size()) return false;
  for (std::size_t i = 0; i < times * known_.size(); ++i) {
    if (rounds[rounds.size() - 1 - i] != known_[known_.size() - 1 - i % known_.size()])
      return false;
  }
  return true;
}

std::optional<std::vector<FusedTensors>> ScheduleLearner::learned() const {
  if (recent_.empty()) return std::nullopt;
  const int rounds = ends_with_known() ? static_cast<int>(known_.size()) : period();
  if (rounds == 0 || std::ssize(recent_) < rounds) return std::nullopt;
  std::vector<ReadyTensor> tensors;
  for (auto round = recent_.end() - rounds; round != recent_.end(); ++round) {
    tensors.insert(tensors.end(), round->tensors.begin(), round->tensors.end());
  }
  return make_buckets(std::move(tensors), settings_.sizes);
}

void ScheduleLearner::frozen(std::vector<FusedTensors> cycle) {
  const int rounds = ends_with_known() ? static_cast<int>(known_.size()) : period();
  known_.clear();
  for (auto round = recent_.end() - rounds; round != recent_.end(); ++round) {
    known_.push_back(round->fingerprint);
  }
  cycle_ = std::move(cycle);
  reset();
}

void ScheduleLearner::thawed(std::uint64_t cycles,
                             std::span<const std::size_t> buckets_of_this_cycle) {
  reset();
  patience_ = cycles >= kLasting ? 0 : std::min(2 * patience_ + 1, kMaxPatience);
  for (const std::size_t bucket : buckets_of_this_cycle) {
    observe(std::span<const ReadyTensor>(cycle_.at(bucket)));
  }
}

namespace {

struct Bucket {
  FusedTensors tensors;
  std::size_t bytes = 0;
  std::size_t complete_at = 0;  // index of its last tensor in the cycle
};

/// Holds a tensor and its index among all tensors of the cycle.
struct IndexedTensor {
  ReadyTensor tensor;
  std::size_t index = 0;
};

/// Holds tensors that may all share a call. A run has a name only once: if a name occurs twice in a
/// cycle, the second operation waited for the first.
struct Run {
  std::vector<IndexedTensor> tensors;
  std::set<std::string> names;
};

// If each tensor waits for the result of the previous one, thousands of tensors make thousands of
// runs. Therefore only the latest runs are searched.
constexpr std::size_t kRunsSearched = 64;

/// Cuts a run of tensors that may all share a call into buckets.
void cut(std::vector<IndexedTensor> run, const BucketSizes& sizes, std::vector<Bucket>& buckets) {
  std::size_t total = 0;
  for (const IndexedTensor& one : run) total += bytes_of(one.tensor);
  const bool edges = sizes.edge > 0 && total > 2 * sizes.edge;
  // The last bucket begins at `tail`.
  std::size_t tail = run.size();
  std::size_t tail_bytes = 0;
  if (edges) {
    while (tail > 1 && tail_bytes + bytes_of(run[tail - 1].tensor) <= sizes.edge) {
      tail_bytes += bytes_of(run[--tail].tensor);
    }
  }
  const std::size_t first_bucket = buckets.size();
  for (std::size_t i = 0; i < run.size(); ++i) {
    const std::size_t bytes = bytes_of(run[i].tensor);
    const bool in_first = buckets.size() == first_bucket + 1;
    const std::size_t limit = in_first && edges ? sizes.edge : sizes.threshold;
    if (buckets.size() == first_bucket || i == tail || sizes.threshold == 0 ||
        buckets.back().bytes + bytes > limit) {
      buckets.emplace_back();
    }
    Bucket& bucket = buckets.back();
    bucket.bytes += bytes;
    bucket.complete_at = run[i].index;
    bucket.tensors.push_back(std::move(run[i].tensor));
  }
}

}  // namespace

std::vector<FusedTensors> make_buckets(std::vector<ReadyTensor> tensors, const BucketSizes& sizes) {
  std::vector<Run> runs;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    ReadyTensor& tensor = tensors[index];
    const auto fits = [&](const Run& run) {
      return may_share_bucket(run.tensors.front().tensor, tensor) &&
             run.names.count(tensor.request.name) == 0;
    };
    const std::size_t near = std::min(runs.size(), kRunsSearched);
    auto run = std::find_if(runs.rbegin(), runs.rbegin() + static_cast<std::ptrdiff_t>(near), fits);
    if (run == runs.rbegin() + static_cast<std::ptrdiff_t>(near)) {
      runs.emplace_back();
      run = runs.rbegin();
    }
    run->names.insert(tensor.request.name);
    run->tensors.push_back({std::move(tensor), index});
  }
  std::vector<Bucket> buckets;
  for (Run& run : runs) cut(std::move(run.tensors), sizes, buckets);
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.complete_at < b.complete_at; });
  std::vector<FusedTensors> cycle;
  for (Bucket& bucket : buckets) cycle.push_back(std::move(bucket.tensors));
  return cycle;
}

}  // namespace hvd::detail
