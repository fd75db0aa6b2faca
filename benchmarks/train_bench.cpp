// train_bench --model M --mode hvd|lockstep|independent|exact measures training steps per second,
// and how much of the communication is hidden. With several modes, separated by commas, or with
// --rounds, one process runs all modes in turns, each time with a new model. Run it under hvdrun;
// rank 0 prints. The exit status is 0, 1 when the job failed, or 64 for a wrong command line.
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "train.hpp"
#include "workload.hpp"

namespace {

using hvd::GradientMemory;
using hvd::bench::Mode;

constexpr int kUsage = 64;
constexpr int kSeed = 1;

const std::map<std::string, Mode> kModes{{"hvd", Mode::hvd},
                                         {"lockstep", Mode::lockstep},
                                         {"independent", Mode::independent},
                                         {"exact", Mode::exact}};
const std::map<std::string, GradientMemory> kMemories{{"born", GradientMemory::born_shared},
                                                      {"copied", GradientMemory::copied_shared},
                                                      {"as-is", GradientMemory::as_is}};

struct Options {
  std::string model = "cnn";
  std::vector<std::string> modes{"hvd"};
  int rounds = 1;
  std::string memory = "born";
  std::string json;
  std::string device = "cpu";
  std::int64_t batch = 0;
  std::int64_t image = 0;
  int threads = 1;
  hvd::bench::TrainSettings settings;
};

void print_header() {
  fmt::print(
      "{:>9} {:>12} {:>6} {:>13} {:>13} {:>11} {:>13} {:>9} {:>7} {:>9} {:>8} {:>8} {:>8} {:>8}\n",
      "model", "mode", "ranks", "images/s", "step p50 ms", "backward ms", "exposed ms", "comm ms",
      "hidden", "copies", "rss MB", "pss MB", "arena MB", "faults");
}

void print_row(const Options& options, const std::string& mode,
               const hvd::bench::TrainResult& result) {
  const double hidden =
      result.comm_ms > 0 ? 1 - std::min(result.exposed_comm_ms / result.comm_ms, 1.0) : 1;
  fmt::print(
      "{:>9} {:>12} {:>6} {:>13.1f} {:>13.3f} {:>11.3f} {:>13.3f} {:>9.3f} {:>6.0f}% {:>9.1f} "
      "{:>8.0f} "
      "{:>8.0f} {:>8.0f} {:>8.1f}\n",
      options.model, mode, hvd::size(), result.images_per_s, result.step_ms_p50, result.backward_ms,
      result.exposed_comm_ms, result.comm_ms, 100 * hidden, result.gradient_copies, result.rss_mb,
      result.pss_mb, result.arena_mb, result.page_faults);
}

nlohmann::ordered_json json_row(const Options& options, const std::string& mode,
                                const hvd::bench::TrainResult& result) {
  return {{"model", options.model},
          {"mode", mode},
          {"device", options.device},
          {"ranks", hvd::size()},
          {"images_per_s", result.images_per_s},
          {"step_ms_p50", result.step_ms_p50},
          {"backward_ms", result.backward_ms},
          {"exposed_comm_ms", result.exposed_comm_ms},
          {"comm_ms", result.comm_ms},
          {"gradient_copies", result.gradient_copies},
          {"rss_mb", result.rss_mb},
          {"pss_mb", result.pss_mb},
          {"arena_mb", result.arena_mb},
          {"page_faults", result.page_faults},
          {"steps", result.steps}};
}

void write_rows(const std::string& path, const nlohmann::ordered_json& rows) {
  std::ofstream file(path);
  file << rows.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

/// Trains a new model, so that no mode finds the hooks or the gradients of another.
hvd::bench::TrainResult measure(const Options& options, const std::string& mode) {
  torch::manual_seed(kSeed + hvd::rank());  // data differs; models start as rank 0's
  hvd::bench::Workload workload = hvd::bench::make_workload(options.model, options.batch);
  if (options.image > 0) {
    if (!options.model.starts_with("resnet")) {
      throw std::runtime_error("--image: " + options.model + " is no resnet");
    }
    workload.input_shape = {3, options.image, options.image};
  }
  hvd::bench::TrainSettings settings = options.settings;
  settings.mode = kModes.at(mode);
  return hvd::bench::train(hvd::context(), workload, settings);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Steps of training per second, and how much of the communication was hidden.");
  app.add_option("--model", options.model, "the name of a model")
      ->check(CLI::IsMember(hvd::bench::workload_names()));
  app.add_option("--mode", options.modes, "hvd, lockstep, independent or exact, or several: a,b")
      ->delimiter(',')
      ->check(CLI::IsMember(kModes));
  app.add_option("--rounds", options.rounds, "how often to run all modes, in turns")
      ->check(CLI::PositiveNumber);
  app.add_option("--memory", options.memory, "of gradients: born in the arena, copied there, as-is")
      ->check(CLI::IsMember(kMemories));
  app.add_option("--device", options.device, "cpu, or cuda: the GPU of the local rank")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--shards", options.settings.shards, "of mode exact; 0: as many as ranks")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--batch", options.batch, "examples per rank and step; 0: the model's usual")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--image", options.image, "pixels of an image's side, for the resnets; 0: 64")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "of LibTorch, per rank")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.settings.seconds, "to measure, each time")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.settings.steps, "to measure, instead")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "writes the rows to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  options.settings.memory = kMemories.at(options.memory);
  try {
    hvd::init();
    if (options.device == "cuda") {
      const auto gpus = static_cast<int>(torch::cuda::device_count());
      if (gpus == 0) throw std::runtime_error("LibTorch sees no GPU");
      options.settings.device =
          torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(hvd::local_rank() % gpus));
    }
    torch::set_num_threads(options.threads);
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (int round = 0; round < options.rounds; ++round) {
      for (const std::string& mode : options.modes) {
        const hvd::bench::TrainResult result = measure(options, mode);
        if (hvd::rank() != 0) continue;
        if (rows.empty()) print_header();
        print_row(options, mode, result);
        rows.push_back(json_row(options, mode, result));
      }
    }
    if (hvd::rank() == 0 && !options.json.empty()) write_rows(options.json, rows);
    hvd::shutdown();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_bench: {}\n", error.what());
    return 1;
  }
}
