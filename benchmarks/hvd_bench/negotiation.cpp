#include "negotiation.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "measure.hpp"

namespace hvd::bench {
namespace {

constexpr int kSettle = 30;  // enough steps to freeze a schedule
constexpr int kMost = 20'000;

/// The arrays of one step and the operations on them.
class Workload {
 public:
  Workload(Context& context, const std::vector<std::int64_t>& counts, const std::string& name) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      data_.emplace_back(static_cast<std::size_t>(counts[i]));
      options_.push_back(
          {.name = fmt::format("{}/{}", name, i), .op = ReduceOp::sum, .context = &context});
    }
  }

  /// Reduces a single array with a blocking call. Submits several arrays and then waits for all, as
  /// a backward pass does.
  void step() {
    if (data_.size() == 1) {
      allreduce(std::span(data_.front()), options_.front());
      return;
    }
    works_.clear();
    for (std::size_t i = 0; i < data_.size(); ++i) {
      works_.push_back(allreduce_async(data_[i].data(), data_[i].data(), std::ssize(data_[i]),
                                       DType::f32, options_[i]));
    }
    for (const Work& work : works_) work.wait();
  }

 private:
  std::vector<std::vector<float>> data_;
  std::vector<AllreduceOptions> options_;
  std::vector<Work> works_;
};

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::uint64_t messages(const Stats& stats) {
  return stats.control_messages_sent + stats.control_messages_received;
}

template <class T>
void reduce(Context& context, std::vector<T>& values, ReduceOp op) {
  allreduce(std::span(values), {.op = op, .context = &context});
}

/// Returns how many steps fit into the budget, by the slowest rank's estimate.
int iterations_for(Context& context, const Options& options, Workload& workload) {
  if (options.iterations > 0) return options.iterations;
  const auto began = Clock::now();
  for (int i = 0; i < 5; ++i) workload.step();
  std::vector<double> trial{microseconds(Clock::now() - began) / 5};
  reduce(context, trial, ReduceOp::max);
  const double budget = std::chrono::duration<double, std::micro>(options.budget).count();
  return static_cast<int>(std::clamp<double>(budget / std::max(trial.front(), 0.1), 20, kMost));
}

NegotiationRow measure_case(const Config& config, const Options& options, const std::string& name,
                            const std::vector<std::int64_t>& counts) {
  const auto context = make_context(config);
  Workload workload(*context, counts, name);
  NegotiationRow row;
  row.name = name;
  row.ranks = context->size();
  row.tensors = std::ssize(counts);
  row.bytes = sizeof(float) * static_cast<std::size_t>(
                                  std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  row.frozen = config.freeze_after > 0;
  row.iterations = iterations_for(*context, options, workload);
  for (int i = 0; i < kSettle; ++i) workload.step();

  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(row.iterations));
  const Stats before = context->stats();
  for (int i = 0; i < row.iterations; ++i) {
    const auto began = Clock::now();
    workload.step();
    times.push_back(microseconds(Clock::now() - began));
  }
  const Stats after = context->stats();
  workload.step();  // no rank thaws the schedule before all have read their counters

  reduce(*context, times, ReduceOp::max);
  std::sort(times.begin(), times.end());
  row.p50_us = percentile(times, 0.50);
  row.p99_us = percentile(times, 0.99);
  row.control_messages_per_step =
      static_cast<double>(messages(after) - messages(before)) / row.iterations;
  row.froze = after.schedule_hits - before.schedule_hits ==
              static_cast<std::uint64_t>(row.tensors) * static_cast<std::uint64_t>(row.iterations);
  return row;
}

}  // namespace

std::vector<std::int64_t> resnet50_gradients() {
  std::vector<std::int64_t> counts{64 * 3 * 7 * 7, 64, 64};  // stem: weights, scale and shift
  const auto convolution = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    counts.insert(counts.end(), {in * out * kernel * kernel, out, out});
  };
  std::int64_t in = 64;
  const std::vector<std::pair<int, std::int64_t>> stages{{3, 64}, {4, 128}, {6, 256}, {3, 512}};
  for (const auto& [blocks, width] : stages) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  counts.insert(counts.end(), {1000 * in, 1000});  // classifier
  std::reverse(counts.begin(), counts.end());
  return counts;
}

std::vector<NegotiationRow> measure_negotiation(Config config, const Options& options) {
  const std::vector<std::int64_t> gradients = resnet50_gradients();
  const std::int64_t all = std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
  struct Case {
    std::string name;
    std::vector<std::int64_t> counts;
  };
  const std::vector<Case> cases{
      {"blocking", {1}},
      {"many small", std::vector<std::int64_t>(gradients.size(), 256)},
      {"resnet50", gradients},
      {"one tensor", {all}},
  };
  const int freeze_after = std::max(config.freeze_after, 2);
  std::vector<NegotiationRow> rows;
  for (const Case& one : cases) {
    for (const bool frozen : {true, false}) {
      config.freeze_after = frozen ? freeze_after : 0;
      rows.push_back(measure_case(config, options, one.name, one.counts));
      ++config.generation;  // the next context of these ranks
    }
  }
  return rows;
}

std::string negotiation_header() {
  return fmt::format(
      "# per step, the slowest rank's time\n#{:>11} {:>6} {:>8} {:>12} {:>7} {:>12} {:>12} {:>9}\n",
      "case", "ranks", "tensors", "bytes", "frozen", "p50 (us)", "p99 (us)", "messages");
}

std::string negotiation_row(const NegotiationRow& row) {
  return fmt::format(" {:>11} {:>6} {:>8} {:>12} {:>7} {:>12.2f} {:>12.2f} {:>9.2f}\n", row.name,
                     row.ranks, row.tensors, row.bytes, row.froze ? "yes" : "no", row.p50_us,
                     row.p99_us, row.control_messages_per_step);
}

void write_negotiation(const std::string& path, const std::vector<NegotiationRow>& rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const NegotiationRow& row : rows) {
    array.push_back({{"case", row.name},
                     {"ranks", row.ranks},
                     {"tensors", row.tensors},
                     {"bytes", row.bytes},
                     {"frozen", row.froze},
                     {"p50_us", row.p50_us},
                     {"p99_us", row.p99_us},
                     {"control_messages_per_step", row.control_messages_per_step}});
  }
  std::ofstream file(path);
  file << array.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace hvd::bench
