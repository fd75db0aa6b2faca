// mpi_allreduce [--json FILE] runs the cases of `hvd_bench negotiation` with MPI_Allreduce, in
// place, as a program written for MPI would. The exit status is 0, 1 when the file cannot be
// written, or 64 for a wrong command line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include "measure.hpp"
#include "negotiation.hpp"

namespace {

using Seconds = std::chrono::duration<double>;
using Micros = std::chrono::duration<double, std::micro>;

constexpr int kUsage = 64;
constexpr int kSettle = 5;
constexpr int kMost = 20'000;

struct Settings {
  int iterations = 0;    ///< 0: as many as fit into `seconds`
  double seconds = 0.5;  ///< per case
  std::string json;
};

/// The arrays of one step. With `fused` they are copied into one buffer, sent together and copied
/// back.
class Workload {
 public:
  Workload(const std::vector<std::int64_t>& counts, bool fused) {
    for (const std::int64_t count : counts) data_.emplace_back(static_cast<std::size_t>(count));
    if (!fused) return;
    const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    buffer_.resize(static_cast<std::size_t>(all));
  }

  void step() {
    if (buffer_.empty()) {
      for (std::vector<float>& one : data_) sum(one);
      return;
    }
    auto to = buffer_.begin();
    for (const std::vector<float>& one : data_) to = std::copy(one.begin(), one.end(), to);
    sum(buffer_);
    auto from = buffer_.cbegin();
    for (std::vector<float>& one : data_) {
      std::copy_n(from, one.size(), one.begin());
      from += std::ssize(one);
    }
  }

 private:
  static void sum(std::vector<float>& data) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }

  std::vector<std::vector<float>> data_;
  std::vector<float> buffer_;
};

void slowest(std::vector<double>& times) {
  MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
}

double timed(Workload& workload) {
  const auto began = hvd::Clock::now();
  workload.step();
  return Micros(hvd::Clock::now() - began).count();
}

int iterations_for(const Settings& settings, Workload& workload) {
  if (settings.iterations > 0) return settings.iterations;
  std::vector<double> trial(1);
  for (int i = 0; i < 5; ++i) trial.front() += timed(workload) / 5;
  slowest(trial);
  const double budget = Micros(Seconds(settings.seconds)).count();
  return static_cast<int>(std::clamp<double>(budget / std::max(trial.front(), 0.1), 20, kMost));
}

nlohmann::ordered_json measure(const Settings& settings, const std::string& name,
                               const std::vector<std::int64_t>& counts, bool fused) {
  Workload workload(counts, fused);
  const int iterations = iterations_for(settings, workload);
  for (int i = 0; i < kSettle; ++i) workload.step();
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(iterations));
  for (int i = 0; i < iterations; ++i) times.push_back(timed(workload));
  slowest(times);
  std::sort(times.begin(), times.end());

  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return {{"case", name},
          {"ranks", ranks},
          {"tensors", counts.size()},
          {"bytes", static_cast<std::size_t>(all) * sizeof(float)},
          {"fused", fused},
          {"p50_us", hvd::bench::percentile(times, 0.50)},
          {"p99_us", hvd::bench::percentile(times, 0.99)}};
}

nlohmann::ordered_json measure_all(const Settings& settings) {
  const std::vector<std::int64_t> gradients = hvd::bench::resnet50_gradients();
  const std::vector<std::int64_t> small(gradients.size(), 256);
  const auto all = std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  rows.push_back(measure(settings, "blocking", {1}, false));
  for (const bool fused : {false, true}) {
    rows.push_back(measure(settings, "many small", small, fused));
    rows.push_back(measure(settings, "resnet50", gradients, fused));
  }
  rows.push_back(measure(settings, "one tensor", {all}, false));
  return rows;
}

void report(const Settings& settings, const nlohmann::ordered_json& rows) {
  const std::string text = rows.dump(2) + '\n';
  if (settings.json.empty()) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(settings.json);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + settings.json);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Measures what hvd_bench negotiation measures, over MPI. Start it with mpirun.",
               "mpi_allreduce");
  app.add_option("--iters", settings.iterations, "per case; 0: as many as fit into --seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", settings.seconds, "per case, without --iters")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--json", settings.json, "rank 0 writes the rows to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  MPI_Init(&argc, &argv);
  const nlohmann::ordered_json rows = measure_all(settings);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int status = 0;
  try {
    if (rank == 0) report(settings, rows);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_allreduce: %s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
