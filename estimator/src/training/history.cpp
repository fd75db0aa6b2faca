#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <hvd/core/error.hpp>
#include <hvd/estimator/history.hpp>

namespace hvd {

namespace {

using nlohmann::ordered_json;

double number(const ordered_json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

ordered_json json_of(const RowMeans& means) {
  if (means.rows == 0) return nullptr;
  ordered_json out{{"rows", means.rows}, {"loss", means.loss}};
  for (const auto& [name, value] : means.metrics) out[name] = value;
  return out;
}

RowMeans means_from(const ordered_json& json) {
  RowMeans means;
  if (json.is_null()) return means;
  for (const auto& [name, value] : json.items()) {
    if (name == "rows") {
      means.rows = value.get<std::int64_t>();
    } else if (name == "loss") {
      means.loss = number(value);
    } else {
      means.metrics.emplace_back(name, number(value));
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
  const ordered_json list = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) throw Error(Errc::protocol, "a history: it is no list in JSON");
  try {
    History history;
    for (const ordered_json& each : list) {
      history.epochs.push_back({.epoch = each.at("epoch").get<int>(),
                                .ranks = each.at("ranks").get<int>(),
                                .learning_rate = number(each.at("learning_rate")),
                                .seconds = number(each.at("seconds")),
                                .train = means_from(each.at("train")),
                                .validation = means_from(each.at("validation"))});
    }
    return history;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, fmt::format("a history: {}", error.what()));
  }
}

}  // namespace hvd
