#include "tuning/agree_on_plan.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/log.hpp>

namespace hvd::detail {
namespace {

constexpr std::string_view kMeasure = "measure";

/// Returns rank 0's saved plan. Warns and returns nothing when the file cannot be used.
std::optional<AlgorithmPlan> saved(const std::string& path, const std::string& signature) {
  if (path.empty()) return std::nullopt;
  try {
    return load_plan(path, signature);
  } catch (const Error& error) {
    log(LogLevel::warn, 0, fmt::format("HVD_PLAN_FILE: {}; measuring instead", error.what()));
    return std::nullopt;
  }
}

void save(const std::string& path, const std::string& signature, const AlgorithmPlan& plan) {
  if (path.empty()) return;
  try {
    save_plan(path, signature, plan);
  } catch (const Error& error) {
    log(LogLevel::warn, 0, fmt::format("HVD_PLAN_FILE: {}", error.what()));
  }
}

/// Returns the text of the plan where rank 0 can decide it without a measurement, or `kMeasure`.
/// Throws Errc::invalid_argument when rank 0's HVD_PLAN is malformed.
std::string answer(const Config& config, const PlanQuestion& question,
                   const std::string& signature) {
  if (config.plan == "default") return question.defaults.text();
  if (config.plan == "auto") {
    const std::optional<AlgorithmPlan> plan = saved(config.plan_file, signature);
    return plan ? plan->over(question.defaults).text() : std::string(kMeasure);
  }
  try {
    return AlgorithmPlan::parse(config.plan).over(question.defaults).text();
  } catch (const Error& error) {
    throw Error(Errc::invalid_argument, fmt::format("HVD_PLAN: {}", error.what()));
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

AlgorithmPlan agree_on_plan(Session& session, const PlanQuestion& question) {
  const std::string label = fmt::format("plan/{}", question.engine);
  const Bootstrap& bootstrap = session.bootstrap();
  const std::string signature =
      plan_signature(question.engine, session.topology().host_of, session.config().tcp_streams);

  std::string text =
      bootstrap.share(label, [&] { return answer(session.config(), question, signature); });
  if (text == kMeasure) {
    const AlgorithmPlan own = question.measure().over(question.defaults);
    text = bootstrap.share(label + "/measured", [&] {
      save(session.config().plan_file, signature, own);
      return own.text();
    });
  }
  if (session.topology().rank == 0) {
    log(LogLevel::plan, 0, fmt::format("plan for {}: {}", signature, text));
  }
  return AlgorithmPlan::parse(text);
}

}  // namespace hvd::detail
