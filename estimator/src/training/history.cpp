#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/whole_number.hpp>
#include <hvd/estimator/history.hpp>

namespace hvd {

using namespace detail;

namespace {

using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& field, const ordered_json& value, const char* what) {
  throw Error(Errc::protocol,
              fmt::format("a history: '{}' is {}, which is no {}", field, value.dump(), what));
}

double number(const std::string& field, const ordered_json& value) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) refuse(field, value, "number");
  return value.get<double>();
}

template <class Integer>
Integer whole_number(const std::string& field, const ordered_json& value) {
  if (!is_whole<Integer>(value)) {
    refuse(field, value,
           sizeof(Integer) == 4 ? "whole number of 32 bits" : "whole number of 64 bits");
  }
  return value.get<Integer>();
}

ordered_json json_of(const RowMeans& means) {
  if (means.rows == 0) return nullptr;
  ordered_json out{{"rows", means.rows}, {"loss", means.loss}};
  for (const auto& [name, value] : means.metrics) out[name] = value;
  return out;
}

RowMeans means_from(const std::string& of, const ordered_json& json) {
  RowMeans means;
  if (json.is_null()) return means;
  for (const auto& [name, value] : json.items()) {
    const std::string field = fmt::format("{}.{}", of, name);
    if (name == "rows") {
      means.rows = whole_number<std::int64_t>(field, value);
    } else if (name == "loss") {
      means.loss = number(field, value);
    } else {
      means.metrics.emplace_back(name, number(field, value));
    }
  }
  return means;
}

}  // namespace

std::string History::to_json() const {
  ordered_json list = ordered_json::array();
  for (const EpochHistory& epoch : epochs) {
    list.push_back({{"epoch", epoch.epoch},
                    {"ranks", epoch.ranks},
                    {"learning_rate", epoch.learning_rate},
                    {"seconds", epoch.seconds},
                    {"train", json_of(epoch.train)},
                    {"validation", json_of(epoch.validation)}});
  }
  return fmt::format("{}\n", list.dump(2));
}

History History::from_json(std::string_view json) {
  try {
    const ordered_json list = ordered_json::parse(json);
    if (!list.is_array()) throw Error(Errc::protocol, "a history: it is no list in JSON");
    History history;
    for (const ordered_json& each : list) {
      history.epochs.push_back({.epoch = whole_number<int>("epoch", each.at("epoch")),
                                .ranks = whole_number<int>("ranks", each.at("ranks")),
                                .learning_rate = number("learning_rate", each.at("learning_rate")),
                                .seconds = number("seconds", each.at("seconds")),
                                .train = means_from("train", each.at("train")),
                                .validation = means_from("validation", each.at("validation"))});
    }
    return history;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, fmt::format("a history: {}", error.what()));
  }
}

}  // namespace hvd
