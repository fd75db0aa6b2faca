#include "training/checked_options.hpp"

#include <set>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "model/type_names.hpp"

namespace hvd::detail {

namespace {

using nlohmann::ordered_json;

template <class... Arguments>
[[noreturn]] void refuse_options(fmt::format_string<Arguments...> format,
                                 Arguments&&... arguments) {
  throw Error(Errc::invalid_argument, fmt::format(format, std::forward<Arguments>(arguments)...));
}

void at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) refuse_options("{}: {}; expected {} or more", name, value, least);
}

}  // namespace

void check_names(const char* parameter, const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty()) refuse_options("{}: an empty name", parameter);
    if (!seen.insert(name).second) refuse_options("{}: '{}' twice", parameter, name);
  }
}

namespace {

void check_metrics(const std::vector<EstimatorMetric>& metrics) {
  std::vector<std::string> names;
  for (const EstimatorMetric& metric : metrics) {
    if (metric.name == "loss" || metric.name == "rows") {
      refuse_options("metrics: '{}' is a name that the history has already", metric.name);
    }
    if (metric.function.empty()) refuse_options("metrics: '{}' has no function", metric.name);
    names.push_back(metric.name);
  }
  check_names("metrics", names);
}

void check_sink(const char* name,
                const std::variant<std::monostate, std::string, std::ostream*>& to) {
  if (const auto* const path = std::get_if<std::string>(&to); path && path->empty()) {
    refuse_options("runner.{}: an empty path", name);
  }
  if (const auto* const stream = std::get_if<std::ostream*>(&to); stream && *stream == nullptr) {
    refuse_options("runner.{}: a stream that is null", name);
  }
}

/// Describes how the rows for validation are chosen.
ordered_json validation_of(const EstimatorOptions& options) {
  if (!options.validation_rule.empty()) return options.validation_rule;
  if (!options.validation.column.empty()) return options.validation.column;
  return options.validation.fraction;
}

}  // namespace

void check_options(const EstimatorOptions& options) {
  if (!options.store) refuse_options("store: there is none");
  if (options.model.empty()) refuse_options("model: there is none");
  if (!options.optimizer) refuse_options("optimizer: there is none");
  if (options.loss.empty()) refuse_options("loss: there is none");
  if (options.label_cols.empty()) refuse_options("label_cols: there is none");
  check_metrics(options.metrics);
  check_names("output_cols", options.output_cols);
  for (const torch::Dtype type : options.feature_types) {
    if (name_of_type(type).empty())
      refuse_options("feature_types: {} is none", c10::toString(type));
  }
  validate(columns_of(options));
  at_least("batch_size", options.batch_size, 1);
  at_least("val_batch_size", options.val_batch_size, 0);
  at_least("epochs", options.epochs, 1);
  at_least("window_rows", options.window_rows, 1);
  at_least("backward_passes_per_step", options.backward_passes_per_step, 1);
  at_least("num_proc", options.num_proc, 0);
  at_least("runner.slots", options.runner.slots, 0);
  if (options.verbose < 0 || options.verbose > 2) {
    refuse_options("verbose: {}; expected 0, 1 or 2", options.verbose);
  }
  const Validation& validation = options.validation;
  if (!(validation.fraction >= 0 && validation.fraction < 1)) {
    refuse_options("validation: {}; expected a fraction from 0 to below 1, or the name of a column",
                   validation.fraction);
  }
  if (!options.validation_rule.empty() && (validation.fraction > 0 || !validation.column.empty())) {
    refuse_options(
        "validation_rule: it tells of a source given to fit, and validation is given too");
  }
  if (!options.run_id.empty()) static_cast<void>(options.store->run(options.run_id));
  if (options.resume && options.run_id.empty()) refuse_options("resume: it needs a run_id");
  check_sink("output", options.runner.output);
  check_sink("error", options.runner.error);
}

Columns columns_of(const EstimatorOptions& options) {
  return {.features = options.feature_cols,
          .labels = options.label_cols,
          .input_shapes = options.input_shapes,
          .feature_types = options.feature_types,
          .label_shapes = options.label_shapes};
}

std::vector<std::string> output_cols_of(const EstimatorOptions& options, std::size_t outputs) {
  if (!options.output_cols.empty()) {
    if (options.output_cols.size() != outputs) {
      refuse_options("output_cols: {} names, and the model has {} outputs",
                     options.output_cols.size(), outputs);
    }
    return options.output_cols;
  }
  if (outputs == 1) return {"prediction"};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < outputs; ++i) {
    names.push_back(outputs == options.label_cols.size()
                        ? fmt::format("{}__output", options.label_cols[i])
                        : fmt::format("prediction_{}", i));
  }
  return names;
}

ordered_json lasting_of(const EstimatorOptions& options) {
  return {{"feature_cols", options.feature_cols},
          {"label_cols", options.label_cols},
          {"input_shapes", options.input_shapes},
          {"feature_types", names_of_types(options.feature_types)},
          {"validation", validation_of(options)},
          {"seed", options.seed}};
}

ordered_json description_of(const EstimatorOptions& options) {
  ordered_json json = lasting_of(options);
  json["store"] = options.store->uri();
  json["save_runs"] = options.store->options().save_runs;
  json["run_id"] = options.run_id;
  json["resume"] = options.resume;
  json["batch_size"] = options.batch_size;
  json["val_batch_size"] = options.val_batch_size;
  json["epochs"] = options.epochs;
  json["shuffle"] = options.shuffle;
  json["window_rows"] = options.window_rows;
  json["backward_passes_per_step"] = options.backward_passes_per_step;
  json["scale_learning_rate"] = options.scale_learning_rate;
  json["output_cols"] = options.output_cols;
  json["label_shapes"] = options.label_shapes;
  json["metrics"] = ordered_json::array();
  for (const EstimatorMetric& metric : options.metrics) json["metrics"].push_back(metric.name);
  return json;
}

}  // namespace hvd::detail
