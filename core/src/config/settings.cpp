#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "config/environment.hpp"
#include "config/variable_reader.hpp"

namespace hvd::detail {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSecond{1000};
constexpr milliseconds kMillisecond{1};

void read_number(const VariableReader& read, std::string_view name, std::pair<int, int> range,
                 std::string_view expected, int& field) {
  if (const auto number = read.integer(name)) field = *number;
  if (field < range.first || field > range.second) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} is {}: expected {}", name, field, expected));
  }
}

// Reads a level by its name in horovod/common/logging.cc, in upper or lower case.
void read_horovod_log_level(const VariableReader& read, Config& config) {
  constexpr std::string_view kName = "HOROVOD_LOG_LEVEL";
  constexpr std::array<std::pair<std::string_view, LogLevel>, 6> kWords = {
      {{"trace", LogLevel::debug},
       {"debug", LogLevel::debug},
       {"info", LogLevel::info},
       {"warning", LogLevel::warn},
       {"error", LogLevel::error},
       {"fatal", LogLevel::error}}};
  const auto value = read.text(kName);
  if (!value) return;
  std::string word = *value;
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto* const found = std::find_if(kWords.begin(), kWords.end(),
                                         [&](const auto& one) { return one.first == word; });
  if (found == kWords.end()) {
    reject_variable(kName, *value, "expected one of trace, debug, info, warning, error, fatal");
  }
  config.log_level = found->second;
}

void read_log_level(const VariableReader& read, Config& config) {
  if (!read.has("HVD_LOG")) return read_horovod_log_level(read, config);
  constexpr std::array kNames = {"error", "warn", "info", "plan", "debug"};
  std::string name = kNames[static_cast<std::size_t>(config.log_level)];
  read.one_of("HVD_LOG", {kNames[0], kNames[1], kNames[2], kNames[3], kNames[4]}, name);
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  config.log_level = static_cast<LogLevel>(found - kNames.begin());
}

void read_engine(const VariableReader& read, Config& config) {
  read.one_of("HVD_BACKEND", {"auto", "native", "mpi", "nccl"}, config.backend);
  read.one_of("HVD_TRANSPORT", {"auto", "shm", "tcp"}, config.transport);
  read_number(read, "HVD_TCP_STREAMS", {0, 16}, "0 to 16", config.tcp_streams);
  config.plan = read.text("HVD_PLAN").value_or(config.plan);
  config.plan_file = read.text("HVD_PLAN_FILE").value_or("");
  read.bytes("HVD_ARENA_SIZE", config.arena_size);
  read.flag("HVD_STREAM_ORDERED", config.stream_ordered);
  if (const auto fanout = read.integer("HVD_CONTROL_FANOUT")) config.control_fanout = *fanout;
  if (config.control_fanout < 0 || config.control_fanout == 1) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("HVD_CONTROL_FANOUT is {}: expected 0, or 2 and more", config.control_fanout));
  }
  config.interfaces =
      read.text(read.first_set({"HVD_NETWORK_INTERFACES", "HOROVOD_GLOO_IFACE"})).value_or("");
}

void read_malloc(const VariableReader& read, Config& config) {
  const bool is_tuned =
      read.has("MALLOC_MMAP_THRESHOLD_") || read.has("MALLOC_TRIM_THRESHOLD_") ||
      read.text("GLIBC_TUNABLES").value_or("").find("glibc.malloc.") != std::string::npos;
  config.tune_malloc = !is_tuned;
  read.flag("HVD_TUNE_MALLOC", config.tune_malloc);
}

void read_check(const VariableReader& read, Config& config) {
  read_number(read, "HVD_CHECK_REPLICAS_EVERY", {0, 1'000'000'000}, "0 to 1,000,000,000",
              config.check_replicas_every);
}

void read_schedule(const VariableReader& read, Config& config) {
  read.bytes(read.first_set({"HVD_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD"}),
             config.fusion_threshold);
  read_number(read, "HVD_FREEZE_AFTER", {0, 1'000}, "0 to 1000", config.freeze_after);
  read.flag(read.first_set({"HVD_AUTOTUNE", "HOROVOD_AUTOTUNE"}), config.autotune);
  read_number(read, read.first_set({"HVD_AUTOTUNE_CYCLES", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"}),
              {1, 10'000}, "1 to 10000", config.autotune_cycles);
  config.autotune_log =
      read.text(read.first_set({"HVD_AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_LOG"})).value_or("");
}

void read_observers(const VariableReader& read, Config& config) {
  config.timeline = read.text(read.first_set({"HVD_TIMELINE", "HOROVOD_TIMELINE"})).value_or("");
  // For Horovod this means that a timeline may be started later, which is always possible here.
  if (config.timeline == "DYNAMIC" && !read.has("HVD_TIMELINE")) config.timeline.clear();
  read_number(read, "HVD_METRICS_PORT", {0, 65'535}, "a port", config.metrics_port);
  read_log_level(read, config);
}

void read_deadlines(const VariableReader& read, Config& config) {
  read.duration(read.first_set({"HVD_START_TIMEOUT", "HOROVOD_START_TIMEOUT"}), kSecond, false,
                config.start_timeout);
  read.duration("HVD_HEARTBEAT_INTERVAL_MS", kMillisecond, false, config.heartbeat_interval);
  read.duration("HVD_PEER_TIMEOUT_MS", kMillisecond, false, config.peer_timeout);
  read.duration("HVD_HOST_TIMEOUT_S", kSecond, false, config.host_timeout);
  read.duration("HVD_COLLECTIVE_TIMEOUT_S", kSecond, false, config.collective_timeout);
  read.duration(read.first_set({"HVD_STALL_WARN_S", "HOROVOD_STALL_CHECK_TIME_SECONDS"}), kSecond,
                true, config.stall_warn);
  read.duration(read.first_set({"HVD_STALL_ABORT_S", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}),
                kSecond, true, config.stall_abort);
  bool no_stall_check = false;
  read.flag("HOROVOD_STALL_CHECK_DISABLE", no_stall_check);
  if (no_stall_check && !read.has("HVD_STALL_WARN_S")) config.stall_warn = milliseconds{0};
  if (no_stall_check && !read.has("HVD_STALL_ABORT_S")) config.stall_abort = milliseconds{0};
  read.duration("HVD_SHUTDOWN_TIMEOUT_S", kSecond, false, config.shutdown_timeout);
  if (config.host_timeout < 2 * kSecond) {
    reject_variable("HVD_HOST_TIMEOUT_S", *read.text("HVD_HOST_TIMEOUT_S"),
                    "expected 2 seconds or more");
  }
  if (config.peer_timeout <= config.heartbeat_interval) {
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_PEER_TIMEOUT_MS is {}: expected more than "
                            "HVD_HEARTBEAT_INTERVAL_MS, which is {}",
                            config.peer_timeout.count(), config.heartbeat_interval.count()));
  }
}

}  // namespace

void read_settings(const VariableReader& read, Config& config) {
  read_engine(read, config);
  read_malloc(read, config);
  read_check(read, config);
  read_schedule(read, config);
  read_observers(read, config);
  read_deadlines(read, config);
  config.error_file = read.text("TORCHELASTIC_ERROR_FILE").value_or("");
}

}  // namespace hvd::detail
