#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/estimator.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/internal/checkpoint_bytes.hpp>

#include "model/model_file.hpp"
#include "training/checked_options.hpp"
#include "training/training.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Initialises the default context for one fit and shuts it down afterwards.
class DefaultContext {
 public:
  explicit DefaultContext(const Config& config) { init(config); }
  /// Drops an error of the shutdown, because a destructor must not throw.
  ~DefaultContext() {
    try {
      shutdown();
    } catch (const Error&) {
    }
  }
  DefaultContext(const DefaultContext&) = delete;
  DefaultContext& operator=(const DefaultContext&) = delete;
};

using Sink = std::variant<std::monostate, std::string, std::ostream*>;

/// Returns the function that writes the ranks' lines to a stream or a file, which it opens.
SpawnOptions::TakeOutput writer_of(const Sink& sink, const char* name) {
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

/// Throws Errc::invalid_argument when this machine has fewer slots than `processes`.
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

/// Opens the outputs for the ranks' lines. Only the parent process calls this, because it truncates
/// files.
SpawnOptions spawn_options(const RunnerOptions& runner) {
  SpawnOptions options;
  options.output = writer_of(runner.output, "output");
  options.error = writer_of(runner.error, "error");
  options.prefix_output_with_timestamp = runner.prefix_output_with_timestamp;
  return options;
}

/// Returns the bytes in which rank 0 passes its model and the summary to the parent process.
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

}  // namespace

Estimator::Estimator(EstimatorOptions options) : options_(std::move(options)) {
  check_options(options_);
}

Model Estimator::fit(const ParquetSource& train, SpawnSite site) const {
  return fit_or_spawn(train, nullptr, site);
}

Model Estimator::fit(const ParquetSource& train, const ParquetSource& validation,
                     SpawnSite site) const {
  if (options_.validation.fraction > 0 || !options_.validation.column.empty()) {
    throw Error(Errc::invalid_argument,
                "validation: it is given, and so is a source to validate with");
  }
  return fit_or_spawn(train, &validation, site);
}

Model Estimator::fit_or_spawn(const ParquetSource& train, const ParquetSource* validation,
                              SpawnSite site) const {
  const auto run = [&](Context& context) {
    return Training(options_, context, train, validation).run();
  };
  const auto init_and_run = [&](const Config& config) {
    const DefaultContext initialized(config);
    return run(context());
  };
  if (options_.context != nullptr) return run(*options_.context);
  if (is_initialized()) return run(context());
  // A process that `hvd::spawn` started repeats the program up to the call that started it, and
  // becomes a rank there. Its environment describes the job of that call, so an earlier fit does
  // not read it.
  const bool in_child = spawn_is_ahead();
  const Config config = in_child ? Config{} : Config::from_environment();
  if (!config.rank_source.empty()) return init_and_run(config);
  if (options_.num_proc <= 1) return init_and_run(config);

  require_slots(options_.num_proc, options_.runner);
  const auto train_as_rank = [&](int rank) {
    const Model model = init_and_run(Config::from_environment());
    return rank == 0 ? pack(model) : Bytes();
  };
  const std::vector<Bytes> results =
      spawn(train_as_rank, options_.num_proc,
            in_child ? SpawnOptions{} : spawn_options(options_.runner), site);
  return unpack(results.at(0), options_.model);
}

}  // namespace hvd
