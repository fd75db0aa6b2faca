#include "policy/autotuner.hpp"

#include <algorithm>
#include <utility>

namespace hvd::detail {
namespace {

constexpr std::size_t kLeast = std::size_t{64} << 10;
constexpr std::size_t kMost = std::size_t{256} << 20;
// An edge is the threshold divided by one of these; 0 means no edge.
constexpr std::size_t kEdgeParts[] = {0, 2, 4, 16, 64};

// All candidates are measured in kRounds rounds; the best of them in kFinalRounds more, which alone
// count.
constexpr int kRounds = 2;
constexpr std::size_t kFinalists = 3;
constexpr int kFinalRounds = 3;

constexpr int kMayLose = 2;  // rounds of a duel that the challenger may lose

constexpr double kShortest = 1e-9;  // a clock may show 0, and ratios are formed

/// Returns the lower of the two middle values when their number is even, because a disturbance
/// makes a step longer and nothing makes it shorter.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Autotuner::Autotuner(const Settings& settings) : settings_(settings) {
  candidates_.push_back({settings_.start});
  order_ = {0};
  if (settings_.start.threshold == 0) stage_ = Stage::finished;
}

std::optional<BucketSizes> Autotuner::propose() const {
  if (finished()) return std::nullopt;
  return candidates_[order_[next_]].sizes;
}

void Autotuner::measured(double seconds) {
  if (finished()) return;
  candidates_[order_[next_]].seconds.push_back(std::max(seconds, kShortest));
  if (++next_ < order_.size()) return;
  if (stage_ == Stage::warm_up) {
    begin_thresholds();  // the first step of a program is unlike all later ones
  } else {
    end_round();
  }
}

double Autotuner::best_seconds() const {
  const std::vector<double>& seconds = candidates_[best_].seconds;
  return seconds.empty() ? 0 : median(seconds);
}

double Autotuner::best_ratio() const {
  const std::vector<double>& ratios = candidates_[best_].ratios;
  return ratios.empty() ? 1 : median(ratios);
}

std::size_t Autotuner::index_of(const BucketSizes& sizes) {
  const auto found =
      std::find_if(candidates_.begin(), candidates_.end(),
                   [&](const Candidate& candidate) { return candidate.sizes == sizes; });
  const auto index = static_cast<std::size_t>(found - candidates_.begin());
  if (found == candidates_.end()) candidates_.push_back({sizes});
  return index;
}

void Autotuner::begin_thresholds() {
  // Candidates are powers of two times the start; the last one holds everything in one bucket.
  const std::size_t most = settings_.cycle_bytes == 0 ? kMost : settings_.cycle_bytes;
  std::size_t threshold = settings_.start.threshold;
  while (threshold / 2 >= kLeast) threshold /= 2;
  std::vector<BucketSizes> sizes;
  for (bool enough = false; threshold <= kMost && !enough; threshold *= 2) {
    // The cost and gain of an edge depend on its bytes, not on the buckets between.
    sizes.push_back({threshold, std::min(settings_.start.edge, threshold / 2)});
    enough = threshold >= most;
  }
  begin_stage(Stage::thresholds, sizes);
}

void Autotuner::begin_edges() {
  std::vector<BucketSizes> sizes{best()};
  for (const std::size_t part : kEdgeParts) {
    sizes.push_back({best().threshold, part == 0 ? 0 : best().threshold / part});
  }
  begin_stage(Stage::edges, sizes);
}

void Autotuner::begin_duel() {
  if (best_ == 0) {
    stage_ = Stage::finished;
  } else {
    begin_stage(Stage::duel, {best()});
  }
}

void Autotuner::begin_stage(Stage stage, const std::vector<BucketSizes>& sizes) {
  stage_ = stage;
  rounds_ = 0;
  challengers_.clear();
  for (const BucketSizes& one : sizes) {
    const std::size_t index = index_of(one);
    const bool known =
        std::find(challengers_.begin(), challengers_.end(), index) != challengers_.end();
    if (index != 0 && !known) challengers_.push_back(index);
  }
  for (Candidate& candidate : candidates_) candidate.ratios.clear();
  if (challengers_.empty()) {
    begin_duel();
  } else {
    begin_round();
  }
}

void Autotuner::begin_round() {
  next_ = 0;
  order_ = {0};
  order_.insert(order_.end(), challengers_.begin(), challengers_.end());
  // Every other round goes backwards, so that a drift favours no candidate.
  if (rounds_ % 2 == 1) std::reverse(order_.begin(), order_.end());
}

void Autotuner::end_round() {
  std::vector<double> times;
  for (const std::size_t index : order_) times.push_back(candidates_[index].seconds.back());
  const double of_start = candidates_.front().seconds.back();
  // The median keeps a single bad measurement from spoiling the round.
  const double reference = stage_ == Stage::duel ? of_start : median(times);
  for (const std::size_t index : order_) {
    Candidate& candidate = candidates_[index];
    candidate.ratios.push_back(candidate.seconds.back() / reference);
  }
  ++rounds_;
  if (stage_ != Stage::duel) return sift();
  if (rounds_ == kDuelRounds) return judge();
  begin_round();
}

void Autotuner::sift() {
  const auto score = [this](std::size_t index) { return median(candidates_[index].ratios); };
  const auto faster = [&](std::size_t a, std::size_t b) { return score(a) < score(b); };
  std::vector<std::size_t> ranking = challengers_;
  ranking.insert(ranking.begin(), 0);
  std::stable_sort(ranking.begin(), ranking.end(), faster);
  best_ = ranking.front();
  if (rounds_ == kRounds + kFinalRounds) {
    return stage_ == Stage::thresholds ? begin_edges() : begin_duel();
  }
  if (rounds_ == kRounds) {
    ranking.erase(std::find(ranking.begin(), ranking.end(), std::size_t{0}));
    if (ranking.size() > kFinalists) ranking.resize(kFinalists);
    challengers_ = std::move(ranking);
    for (Candidate& candidate : candidates_) candidate.ratios.clear();
  }
  begin_round();
}

/// The measurements that made the challenger the best of many do not count here: it may have been
/// the luckiest.
void Autotuner::judge() {
  const std::vector<double>& ratios = candidates_[best_].ratios;
  const auto lost = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r >= 1; });
  if (lost > kMayLose || median(ratios) > 1 - kMargin) best_ = 0;
  stage_ = Stage::finished;
}

}  // namespace hvd::detail
