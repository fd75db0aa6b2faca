#include "cost/agree_on_plan.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>

#include "cost/plan_file.hpp"

namespace hvd {
namespace {

constexpr std::string_view kMeasure = "measure";
constexpr std::string_view kRefused = "!";  // and why

void say(Store& store, const std::string& key, const std::string& text, Deadline deadline) {
  store.set(key, std::as_bytes(std::span(text)), deadline);
}

std::string hear(Store& store, const std::string& key, Deadline deadline) {
  const Bytes bytes = store.wait(key, deadline);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Rank 0's saved plan. Nothing, and a warning, when the file is of no use.
std::optional<Plan> saved(const std::string& path, const std::string& signature) {
  if (path.empty()) return std::nullopt;
  try {
    return PlanFile(path).load(signature);
  } catch (const Error& error) {
    log(LogLevel::warn, 0, fmt::format("HVD_PLAN_FILE: {}; measuring instead", error.what()));
    return std::nullopt;
  }
}

void save(const std::string& path, const std::string& signature, const Plan& plan) {
  if (path.empty()) return;
  try {
    PlanFile(path).save(signature, plan);
  } catch (const Error& error) {
    log(LogLevel::warn, 0, fmt::format("HVD_PLAN_FILE: {}", error.what()));
  }
}

/// What rank 0 tells before anything is measured.
std::string answer(const Config& config, const PlanQuestion& question,
                   const std::string& signature) {
  if (config.plan == "default") return question.defaults.text();
  if (config.plan == "auto") {
    const std::optional<Plan> plan = saved(config.plan_file, signature);
    return plan ? plan->over(question.defaults).text() : std::string(kMeasure);
  }
  try {
    return Plan::parse(config.plan).over(question.defaults).text();
  } catch (const Error& error) {
    return fmt::format("{}HVD_PLAN: {}", kRefused, error.what());
  }
}

}  // namespace

std::string plan_signature(std::string_view engine, std::span<const int> host_of, int streams) {
  std::vector<int> ranks;  // by host
  for (const int host : host_of) {
    ranks.resize(std::max(ranks.size(), static_cast<std::size_t>(host) + 1));
    ++ranks[static_cast<std::size_t>(host)];
  }
  const std::string order = std::is_sorted(host_of.begin(), host_of.end())
                                ? std::string()
                                : fmt::format("/order={}", fmt::join(host_of, ","));
  return fmt::format("{}/{}{}/streams={}", engine, fmt::join(ranks, "+"), order, streams);
}

Plan agree_on_plan(Session& session, const PlanQuestion& question) {
  const std::string key = fmt::format("plan/ways/{}", question.engine);
  const std::string measured_key = key + "/measured";
  const Deadline deadline = session.start_deadline();
  const std::string signature =
      plan_signature(question.engine, session.topology().host_of, session.config().tcp_streams);
  const bool decides = session.topology().rank == 0;
  Store& store = session.store();

  std::string text;
  if (decides) {
    text = answer(session.config(), question, signature);
    say(store, key, text, deadline);
  } else {
    text = hear(store, key, deadline);
  }
  if (text.substr(0, kRefused.size()) == kRefused) {
    throw Error(Errc::invalid_argument, text.substr(kRefused.size()));
  }
  if (text == kMeasure) {
    const Plan own = question.measure().over(question.defaults);
    if (decides) {
      text = own.text();
      say(store, measured_key, text, deadline);
      save(session.config().plan_file, signature, own);
    } else {
      text = hear(store, measured_key, deadline);
    }
  }
  if (decides) log(LogLevel::plan, 0, fmt::format("plan for {}: {}", signature, text));
  return Plan::parse(text);
}

}  // namespace hvd
