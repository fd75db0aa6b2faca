// A history inside other JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <hvd/estimator/history.hpp>

namespace hvd {

[[nodiscard]] nlohmann::ordered_json history_to_json(const History& history);
/// Throws Errc::protocol.
[[nodiscard]] History history_from_json(const nlohmann::ordered_json& list);

}  // namespace hvd
