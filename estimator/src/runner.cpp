#include "runner.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/checkpoint_bytes.hpp>

#include "model_file.hpp"

namespace hvd {

namespace {

using Sink = std::variant<std::monostate, std::string, std::ostream*>;

SpawnOptions::TakeOutput taker_of(const Sink& sink, const char* name) {
  if (const auto* const stream = std::get_if<std::ostream*>(&sink)) {
    return [to = *stream](std::string_view lines) { *to << lines << std::flush; };
  }
  const auto* const path = std::get_if<std::string>(&sink);
  if (path == nullptr) return nullptr;
  const auto file = std::make_shared<std::ofstream>(*path, std::ios::binary);
  if (!*file) {
    throw Error(Errc::resource,
                fmt::format("runner.{}: cannot open {}: {}", name, *path,
                            std::error_code(errno, std::generic_category()).message()));
  }
  return [file](std::string_view lines) { *file << lines << std::flush; };
}

}  // namespace

void require_slots(int processes, const RunnerOptions& runner) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (runner.slots > 0) {
    if (processes <= runner.slots) return;
    throw Error(
        Errc::invalid_argument,
        fmt::format("num_proc: {} processes, and runner.slots is {}", processes, runner.slots));
  }
  if (processes <= cores) return;
  throw Error(Errc::invalid_argument,
              fmt::format("num_proc: {} processes, and this process may use {} cores; runner.slots "
                          "says how many processes there may be all the same",
                          processes, cores));
}

SpawnOptions spawn_options(const RunnerOptions& runner) {
  SpawnOptions options;
  options.output = taker_of(runner.output, "output");
  options.error = taker_of(runner.error, "error");
  options.prefix_output_with_timestamp = runner.prefix_output_with_timestamp;
  return options;
}

Bytes pack(const Model& model) {
  const FitSummary& summary = model.summary();
  torch::serialize::OutputArchive archive;
  write_model(archive, model.module().module(), model.description(),
              {{"learning_rate", summary.learning_rate},
               {"ranks", summary.ranks},
               {"resumed_epochs", summary.resumed_epochs},
               {"model_uri", summary.model_uri}});
  return to_checkpoint(archive);
}

Model unpack(const Bytes& bytes, const Trainable& module) {
  const std::string what = "the model of rank 0";
  torch::serialize::InputArchive archive = from_checkpoint(bytes, what);
  ModelFile file = read_description(archive, what);
  read_tensors(archive, module.module(), what);
  module.module().eval();
  return {module,
          std::move(file.description),
          {.learning_rate = file.more.at("learning_rate").get<double>(),
           .ranks = file.more.at("ranks").get<int>(),
           .resumed_epochs = file.more.at("resumed_epochs").get<int>(),
           .model_uri = file.more.at("model_uri").get<std::string>()}};
}

}  // namespace hvd
