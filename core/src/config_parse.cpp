#include "config_parse.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/address.hpp>
#include <hvd/core/error.hpp>

namespace hvd {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void reject(std::string_view name, std::string_view value, std::string_view expected) {
  throw Error(Errc::invalid_argument, fmt::format("{} is '{}': {}", name, value, expected));
}

/// The whole text as a number; no sign but '-', no blanks, no trailing characters.
template <typename T>
std::optional<T> to_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads variables one by one; every complaint names the variable and quotes its value.
class Reader {
 public:
  explicit Reader(const Lookup& lookup) : lookup_(lookup) {}

  [[nodiscard]] std::optional<std::string> text(std::string_view name) const {
    return lookup_(name);
  }

  [[nodiscard]] std::optional<int> integer(std::string_view name) const {
    const auto value = lookup_(name);
    if (!value) return std::nullopt;
    const auto number = to_number<int>(*value);
    if (!number || *number < 0) reject(name, *value, "expected a whole number, 0 or more");
    return number;
  }

  /// "number" in units of `unit`, fractions allowed.
  void duration(std::string_view name, milliseconds unit, bool zero_allowed,
                milliseconds& field) const {
    const auto value = lookup_(name);
    if (!value) return;
    const auto number = to_number<double>(*value);
    constexpr double kLongest = 1e12;  // ms, about 30 years: far from any overflow
    const double ms = number ? std::round(*number * static_cast<double>(unit.count())) : -1.0;
    const double least = zero_allowed ? 0.0 : 1.0;
    if (!std::isfinite(ms) || ms < least || ms > kLongest || std::signbit(*number)) {
      reject(name, *value,
             fmt::format("expected a number of {}{}",
                         unit == milliseconds{1} ? "milliseconds" : "seconds",
                         zero_allowed ? ", 0 or more" : " above 0"));
    }
    field = milliseconds{static_cast<milliseconds::rep>(ms)};
  }

  /// Plain bytes, or with a suffix K, M or G for powers of 1024.
  void bytes(std::string_view name, std::size_t& field) const {
    const auto value = lookup_(name);
    if (!value) return;
    std::string_view digits = *value;
    int shift = 0;
    if (!digits.empty()) {
      switch (digits.back()) {
        case 'k':
        case 'K':
          shift = 10;
          break;
        case 'm':
        case 'M':
          shift = 20;
          break;
        case 'g':
        case 'G':
          shift = 30;
          break;
        default:
          break;
      }
      if (shift != 0) digits.remove_suffix(1);
    }
    const auto number = to_number<std::uint64_t>(digits);
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (!number || *number > (kMost >> shift)) {
      reject(name, *value, "expected a size in bytes, as in 4194304, 4096K, 16M or 1G");
    }
    field = static_cast<std::size_t>(*number << shift);
  }

  /// 0 or 1.
  void flag(std::string_view name, bool& field) const {
    std::string text = field ? "1" : "0";
    one_of(name, {"0", "1"}, text);
    field = text == "1";
  }

  void one_of(std::string_view name, std::initializer_list<std::string_view> choices,
              std::string& field) const {
    const auto value = lookup_(name);
    if (!value) return;
    if (std::find(choices.begin(), choices.end(), *value) == choices.end()) {
      reject(name, *value, fmt::format("expected one of {}", fmt::join(choices, ", ")));
    }
    field = *value;
  }

 private:
  const Lookup& lookup_;
};

struct Place {
  int rank;
  int size;
};

/// A rank and a size that belong together. Nothing when neither is set.
std::optional<Place> read_place(const Reader& read, const std::string& rank_name,
                                const std::string& size_name) {
  const auto rank = read.integer(rank_name);
  const auto size = read.integer(size_name);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    const auto& set = rank ? rank_name : size_name;
    const auto& missing = rank ? size_name : rank_name;
    throw Error(Errc::invalid_argument,
                fmt::format("{} is '{}', but {} is not set", set, *read.text(set), missing));
  }
  if (*size < 1) reject(size_name, *read.text(size_name), "expected 1 or more");
  if (*rank >= *size) {
    reject(rank_name, *read.text(rank_name),
           fmt::format("expected less than {}, which is {}", size_name, *size));
  }
  return Place{*rank, *size};
}

/// As `read_place`, for a part of a job of `size` ranks.
std::optional<Place> read_part(const Reader& read, const std::string& rank_name,
                               const std::string& size_name, int size) {
  const auto place = read_place(read, rank_name, size_name);
  if (place && place->size > size) {
    reject(size_name, *read.text(size_name),
           fmt::format("expected at most the size of the job, which is {}", size));
  }
  return place;
}

void set_place(Config& config, const std::optional<Place>& all, const std::optional<Place>& local,
               const std::optional<Place>& cross) {
  config.rank = all->rank;
  config.size = all->size;
  if (local) std::tie(config.local_rank, config.local_size) = std::pair{local->rank, local->size};
  if (cross) std::tie(config.cross_rank, config.cross_size) = std::pair{cross->rank, cross->size};
}

/// Job ids become part of keys and messages.
std::string check_job_id(std::string_view name, std::string value) {
  const bool printable =
      std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  constexpr std::size_t kLongest = 128;
  if (value.empty() || value.size() > kLongest || !printable) {
    reject(name, value, "expected 1 to 128 printable ASCII characters without blanks");
  }
  return value;
}

void read_store(const Reader& read, Config& config) {
  const auto store = read.text("HVD_STORE");
  if (!store) {
    if (config.size == 1) return;
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_SIZE is '{}', but HVD_STORE, the address at which the ranks "
                            "meet, is not set",
                            config.size));
  }
  try {
    (void)Address::parse(*store);
  } catch (const Error& error) {
    reject("HVD_STORE", *store, error.what());
  }
  config.rendezvous = Rendezvous::store;
  config.store_address = *store;
  if (const auto fd = read.integer("HVD_SECRET_FD")) config.secret_fd = *fd;
  config.secret_file = read.text("HVD_SECRET_FILE").value_or("");
}

/// What `hvdrun` sets. False when it did not start this process.
bool read_hvd(const Reader& read, Config& config) {
  const auto all = read_place(read, "HVD_RANK", "HVD_SIZE");
  if (!all) return false;
  set_place(config, all, read_part(read, "HVD_LOCAL_RANK", "HVD_LOCAL_SIZE", all->size),
            read_part(read, "HVD_CROSS_RANK", "HVD_CROSS_SIZE", all->size));
  if (auto id = read.text("HVD_JOB_ID")) config.job_id = check_job_id("HVD_JOB_ID", std::move(*id));
  if (const auto restarts = read.integer("HVD_RESTART_COUNT")) {
    config.epoch = static_cast<std::uint32_t>(*restarts);
  }
  read_store(read, config);
  return true;
}

/// What Open MPI's `mpirun` sets. False when it did not start this process.
bool read_open_mpi(const Reader& read, Config& config) {
  const auto all = read_place(read, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (!all) return false;
  set_place(config, all,
            read_part(read, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", all->size),
            std::nullopt);
  if (all->size > 1) config.rendezvous = Rendezvous::pmix;
  if (auto id = read.text("PMIX_NAMESPACE")) {
    config.job_id = check_job_id("PMIX_NAMESPACE", std::move(*id));
  }
  return true;
}

void read_log_level(const Reader& read, Config& config) {
  constexpr std::array kNames = {"error", "warn", "info", "plan", "debug"};
  std::string name = kNames[static_cast<std::size_t>(config.log_level)];
  read.one_of("HVD_LOG", {kNames[0], kNames[1], kNames[2], kNames[3], kNames[4]}, name);
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  config.log_level = static_cast<LogLevel>(found - kNames.begin());
}

void read_tuning(const Reader& read, Config& config) {
  read.one_of("HVD_BACKEND", {"auto", "native", "mpi", "nccl"}, config.backend);
  read.one_of("HVD_TRANSPORT", {"auto", "shm", "tcp"}, config.transport);
  if (const auto streams = read.integer("HVD_TCP_STREAMS")) config.tcp_streams = *streams;
  if (config.tcp_streams < 0 || config.tcp_streams > 16) {
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_TCP_STREAMS is {}: expected 0 to 16", config.tcp_streams));
  }
  config.plan = read.text("HVD_PLAN").value_or(config.plan);
  config.plan_file = read.text("HVD_PLAN_FILE").value_or("");
  read.bytes("HVD_ARENA_SIZE", config.arena_size);
  if (const auto fanout = read.integer("HVD_CONTROL_FANOUT")) config.control_fanout = *fanout;
  if (config.control_fanout < 0 || config.control_fanout == 1) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("HVD_CONTROL_FANOUT is {}: expected 0, or 2 and more", config.control_fanout));
  }
  config.interfaces = read.text("HVD_NETWORK_INTERFACES").value_or("");
  read.bytes("HVD_FUSION_THRESHOLD", config.fusion_threshold);
  if (const auto steps = read.integer("HVD_FREEZE_AFTER")) config.freeze_after = *steps;
  if (config.freeze_after < 0 || config.freeze_after > 1'000) {
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_FREEZE_AFTER is {}: expected 0 to 1000", config.freeze_after));
  }
  read.flag("HVD_AUTOTUNE", config.autotune);
  if (const auto cycles = read.integer("HVD_AUTOTUNE_CYCLES")) config.autotune_cycles = *cycles;
  if (config.autotune_cycles < 1 || config.autotune_cycles > 10'000) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("HVD_AUTOTUNE_CYCLES is {}: expected 1 to 10000", config.autotune_cycles));
  }
  config.autotune_log = read.text("HVD_AUTOTUNE_LOG").value_or("");
  config.timeline = read.text("HVD_TIMELINE").value_or("");
  if (const auto port = read.integer("HVD_METRICS_PORT")) config.metrics_port = *port;
  if (config.metrics_port < 0 || config.metrics_port > 65'535) {
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_METRICS_PORT is {}: expected a port", config.metrics_port));
  }
  read_log_level(read, config);

  constexpr milliseconds kSecond{1000};
  constexpr milliseconds kMillisecond{1};
  read.duration("HVD_START_TIMEOUT", kSecond, false, config.start_timeout);
  read.duration("HVD_HEARTBEAT_INTERVAL_MS", kMillisecond, false, config.heartbeat_interval);
  read.duration("HVD_PEER_TIMEOUT_MS", kMillisecond, false, config.peer_timeout);
  read.duration("HVD_COLLECTIVE_TIMEOUT_S", kSecond, false, config.collective_timeout);
  read.duration("HVD_STALL_WARN_S", kSecond, true, config.stall_warn);
  read.duration("HVD_STALL_ABORT_S", kSecond, true, config.stall_abort);
  read.duration("HVD_SHUTDOWN_TIMEOUT_S", kSecond, false, config.shutdown_timeout);
  if (config.peer_timeout <= config.heartbeat_interval) {
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_PEER_TIMEOUT_MS is {}: expected more than "
                            "HVD_HEARTBEAT_INTERVAL_MS, which is {}",
                            config.peer_timeout.count(), config.heartbeat_interval.count()));
  }
}

}  // namespace

Config parse_config(const Lookup& lookup) {
  const Reader read(lookup);
  Config config;
  if (!read_hvd(read, config)) read_open_mpi(read, config);
  read_tuning(read, config);
  return config;
}

}  // namespace hvd
