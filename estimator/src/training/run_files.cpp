#include "training/run_files.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

namespace hvd::detail {

namespace {

constexpr std::string_view kPrefix = "epoch-";
constexpr std::string_view kSuffix = ".hvd";

/// Returns 0 when the name is not that of a checkpoint.
int epoch_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return 0;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  return std::max(to_number<int>(name).value_or(0), 0);
}

int last_below(const EstimatorStore& store, const std::string& folder, int limit) {
  int last = 0;
  for (const std::string& name : store.list(folder)) {
    const int epoch = epoch_of(name);
    if (limit == 0 || epoch < limit) last = std::max(last, epoch);
  }
  return last;
}

}  // namespace

std::string RunFiles::checkpoint(int epoch) const {
  return fmt::format("{}/{}{}{}", store_.checkpoint(run_id_), kPrefix, epoch, kSuffix);
}
std::string RunFiles::model() const { return fmt::format("{}/model.hvd", store_.run(run_id_)); }
std::string RunFiles::history() const {
  return fmt::format("{}/history.json", store_.logs(run_id_));
}
std::string RunFiles::plot() const { return fmt::format("{}/history.svg", store_.logs(run_id_)); }

int RunFiles::last_epoch() const { return last_below(store_, store_.checkpoint(run_id_), 0); }

std::string RunFiles::advice(int epoch) const {
  const int before = last_below(store_, store_.checkpoint(run_id_), epoch);
  return before > 0 ? fmt::format("delete it to go on after epoch {}", before)
                    : "delete it to begin anew";
}

std::string make_run_id() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::random_device chance;
  return fmt::format("run-{:04}{:02}{:02}-{:02}{:02}{:02}-{:08x}", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     chance());
}

}  // namespace hvd::detail
