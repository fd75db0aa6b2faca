#include <cstdio>
#include <exception>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/estimator/estimator.hpp>
#include <hvd/estimator/estimator_main.hpp>
#include <hvd/spark.hpp>

#include "program/program.hpp"
#include "state/atomic_file.hpp"
#include "store/arrow_status.hpp"
#include "store/environment.hpp"
#include "store/file_system.hpp"

namespace hvd {

using namespace detail;

namespace {

using nlohmann::ordered_json;

constexpr int kUsage = 64;  // EX_USAGE of sysexits.h

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CommandLine {
  EstimatorArguments arguments;
  std::string model;
};

CommandLine parse(int argc, char** argv) {
  const std::span<char*> given(argv, static_cast<std::size_t>(argc));
  CommandLine line;
  EstimatorArguments& arguments = line.arguments;
  if (given.size() < 2) throw UsageError("a command is missing: fit, transform or columns");
  arguments.command = given[1];
  if (arguments.command != "fit" && arguments.command != "transform" &&
      arguments.command != "columns") {
    throw UsageError(
        fmt::format("unknown command '{}': fit, transform or columns", arguments.command));
  }
  const bool scores = arguments.command != "fit";
  for (std::size_t i = 2; i < given.size(); ++i) {
    const std::string argument = given[i];
    if (scores && argument == "--model") {
      if (++i == given.size()) throw UsageError("--model needs a file");
      line.model = given[i];
    } else if (scores && argument.starts_with("--model=")) {
      line.model = argument.substr(std::string_view("--model=").size());
    } else {
      arguments.rest.push_back(argument);
    }
  }
  if (scores && line.model.empty()) {
    throw UsageError(fmt::format("{} needs --model FILE", arguments.command));
  }
  return line;
}

/// Reserves standard output for the results. The program's other writes to it go to stderr.
class OwnOutput {
 public:
  OwnOutput() : fd_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
    if (!fd_ || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
      throw Error(Errc::resource, "standard output cannot be used");
    }
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

void fit(EstimatorArguments arguments, const MakeEstimator& make) {
  arguments.request = estimator_request_text();
  if (!arguments.request) {
    throw Error(Errc::invalid_argument, "HVD_ESTIMATOR is not set: it says what to train on");
  }
  EstimatorOptions options = make(arguments);
  const FitRequest request = apply_request(*arguments.request, options);
  const auto open = [&](const std::string& uri) {
    return ParquetSource::open(uri, request.storage_options);
  };
  const Estimator estimator(std::move(options));
  const ParquetSource train = open(request.train_data);
  const Model model =
      request.val_data ? estimator.fit(train, open(*request.val_data)) : estimator.fit(train);
  const FitSummary& summary = model.summary();
  // Only rank 0 returns a result.
  set_result(ordered_json{
      {"run_id", model.run_id()},
      {"model", summary.model_uri.empty() ? ordered_json() : ordered_json(summary.model_uri)},
      {"history", ordered_json::parse(model.history().to_json())},
      {"learning_rate", summary.learning_rate},
      {"ranks", summary.ranks},
      {"resumed_epochs", summary.resumed_epochs}}
                 .dump());
}

/// Reads a local file, which may be a descriptor such as /dev/fd/7.
Model load(const CommandLine& line, const MakeEstimator& make) {
  return Model::from_bytes(read_file(line.model), make(line.arguments).model,
                           fmt::format("the model {}", line.model));
}

void transform(const CommandLine& line, const MakeEstimator& make) {
  const OwnOutput output;
  const Model model = load(line, make);
  score_stream(model, STDIN_FILENO, output.fd());
}

void columns(const CommandLine& line, const MakeEstimator& make) {
  const OwnOutput output;
  const Model model = load(line, make);
  const ModelDescription& description = model.description();
  const std::string text =
      fmt::format("{}\n", ordered_json{{"feature_cols", description.feature_cols},
                                       {"label_cols", description.label_cols},
                                       {"input_shapes", description.input_shapes},
                                       {"output_cols", description.output_cols},
                                       {"output_types", model.output_types()}}
                              .dump());
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(output.fd(), left.data(), left.size());
    if (written < 0) throw Error(Errc::resource, "standard output cannot be written");
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

int estimator_main(int argc, char** argv, const MakeEstimator& make) {
  const std::string program = argc > 0 ? split_uri(argv[0]).name : "estimator";
  try {
    const CommandLine line = parse(argc, argv);
    if (line.arguments.command == "fit") {
      fit(line.arguments, make);
    } else if (line.arguments.command == "transform") {
      transform(line, make);
    } else {
      columns(line, make);
    }
    return 0;
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return kUsage;
  } catch (const c10::Error& error) {  // hvd_spark expects the error on one line
    fmt::print(stderr, "{}: {}\n", program, one_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, one_line(error.what()));
  }
  return 1;
}

}  // namespace hvd
