#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/whole_number.hpp>

#include "program/program.hpp"

namespace hvd::detail {

namespace {

using nlohmann::json;

constexpr const char* kVariable = "HVD_ESTIMATOR";

template <class... Arguments>
[[noreturn]] void refuse_request(fmt::format_string<Arguments...> format,
                                 Arguments&&... arguments) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("{}: {}", kVariable, fmt::format(format, std::forward<Arguments>(arguments)...)));
}

/// Returns whether the value is exactly a T. Without this check the JSON library would convert it
/// silently, for example 2.5 to an int or true to a number.
template <class T>
bool fits(const json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_boolean();
  } else if constexpr (std::is_integral_v<T>) {
    return is_whole<T>(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string();
  } else if constexpr (std::is_same_v<T, StorageOptions>) {
    return value.is_object() && std::all_of(value.begin(), value.end(), fits<std::string>);
  } else {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), fits<typename T::value_type>);
  }
}

template <class T>
constexpr const char* kExpected = "something else";
template <>
constexpr const char* kExpected<bool> = "true or false";
template <>
constexpr const char* kExpected<int> = "a whole number of 32 bits";
template <>
constexpr const char* kExpected<std::int64_t> = "a whole number of 64 bits";
template <>
constexpr const char* kExpected<std::uint64_t> = "a whole number from 0";
template <>
constexpr const char* kExpected<std::string> = "a text";
template <>
constexpr const char* kExpected<std::vector<std::string>> = "a list of texts";
template <>
constexpr const char* kExpected<std::vector<std::vector<std::int64_t>>> =
    "a list of lists of whole numbers";
template <>
constexpr const char* kExpected<StorageOptions> = "texts by name";

template <class T>
T read(const std::string& key, const json& value) {
  if (fits<T>(value)) return value.get<T>();
  // The message leaves out the value of a key that may hold a secret.
  if constexpr (std::is_same_v<T, StorageOptions>)
    refuse_request("{}: expected {}", key, kExpected<T>);
  else
    refuse_request("{} is {}; expected {}", key, value.dump(), kExpected<T>);
}

ValidationChoice read_validation(const std::string& key, const json& value) {
  if (value.is_null()) return {};
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  refuse_request("{} is {}; expected a fraction or the name of a column", key, value.dump());
}

/// Maps each key to the parameter that it sets.
class RequestKeys {
 public:
  RequestKeys(EstimatorOptions& options, FitRequest& request) {
    const auto put = [this](const char* key, auto& target) {
      using T = std::decay_t<decltype(target)>;
      keys_[key] = [key, &target](const json& value) { target = read<T>(key, value); };
    };
    put("train_data", request.train_data);
    put("storage_options", request.storage_options);
    put("store", store_);
    put("feature_cols", options.feature_cols);
    put("label_cols", options.label_cols);
    put("output_cols", options.output_cols);
    put("input_shapes", options.input_shapes);
    put("label_shapes", options.label_shapes);
    put("batch_size", options.batch_size);
    put("val_batch_size", options.val_batch_size);
    put("epochs", options.epochs);
    put("verbose", options.verbose);
    put("backward_passes_per_step", options.backward_passes_per_step);
    put("run_id", options.run_id);
    put("resume", options.resume);
    put("seed", options.seed);
    put("shuffle", options.shuffle);
    put("scale_learning_rate", options.scale_learning_rate);
    keys_["save_runs"] = [this](const json& value) { save_runs_ = read<bool>("save_runs", value); };
    keys_["validation"] = [&options](const json& value) {
      options.validation = read_validation("validation", value);
    };
    keys_["val_data"] = [&request](const json& value) {
      request.val_data.reset();
      if (!value.is_null()) request.val_data = read<std::string>("val_data", value);
    };
  }

  void take(const std::string& key, const json& value) {
    const auto known = keys_.find(key);
    if (known == keys_.end()) refuse_request("unknown key '{}'", key);
    known->second(value);
  }

  /// Opens the store when all keys have been read.
  void open_store(EstimatorOptions& options, const StorageOptions& storage_options) const {
    const bool own = options.store.has_value();
    if (store_.empty() && !own) refuse_request("store is missing");
    if (store_.empty() && !save_runs_) return;
    EstimatorStoreOptions wanted;
    if (own) wanted = options.store->options();
    if (save_runs_) wanted.save_runs = *save_runs_;
    if (!store_.empty()) wanted.storage_options = storage_options;
    options.store = EstimatorStore::open(store_.empty() ? options.store->uri() : store_, wanted);
  }

 private:
  std::map<std::string, std::function<void(const json&)>> keys_;
  std::string store_;
  std::optional<bool> save_runs_;
};

}  // namespace

FitRequest apply_request(const std::string& text, EstimatorOptions& options) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) refuse_request("it is no object in JSON");
  FitRequest request;
  RequestKeys keys(options, request);
  for (const auto& [key, value] : all.items()) keys.take(key, value);
  if (request.train_data.empty()) refuse_request("train_data is missing");
  if (request.val_data) {  // the request has chosen the rows and replaces the program's own choice
    const json rule = all.value("validation", json(""));
    options.validation_rule = rule.is_string() ? rule.get<std::string>() : rule.dump();
    options.validation = {};
  }
  keys.open_store(options, request.storage_options);
  return request;
}

}  // namespace hvd::detail
