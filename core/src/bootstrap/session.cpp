#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/poll.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/store.hpp>

#include "base/error_file.hpp"
#include "bootstrap/start_watch.hpp"
#include "store/rendezvous.hpp"

namespace hvd {

using namespace detail;

namespace {

Secret secret_of(const Config& config) {
  if (config.secret_fd >= 0) return Secret::from_fd(config.secret_fd);
  if (!config.secret_file.empty()) return Secret::from_file(config.secret_file);
  return {};
}

std::string no_store_message(const Config& config) {
  if (config.rank_source.empty()) {
    return fmt::format("{} ranks, but no store to meet in: HVD_STORE is not set", config.size);
  }
  return fmt::format(
      "{} tells of {} ranks on several hosts, but not where they can meet: set "
      "HVD_RENDEZVOUS=host:port of rank 0's host and HVD_SECRET_FILE, or use hvdrun",
      config.rank_source, config.size);
}

/// Checks the ranks of `config`. Where only some make this job, the result describes that.
Config checked(Config config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} of {}: no such rank", config.rank, config.size));
  }
  const std::vector<int>& ranks = config.ranks;
  if (ranks.empty()) return config;
  const std::set<int> ascending(ranks.begin(), ranks.end());
  const auto own = std::find(ranks.begin(), ranks.end(), config.rank);
  if (ascending.size() != ranks.size() || *ascending.begin() < 0 ||
      *ascending.rbegin() >= config.size || own == ranks.end()) {
    throw Error(Errc::invalid_argument,
                fmt::format("[{}] is no list of some of {} ranks with rank {} among them",
                            fmt::join(ranks, ", "), config.size, config.rank));
  }
  const bool one_host = config.local_size == config.size;
  if (config.rendezvous == Rendezvous::hosted && ranks.front() != 0 && !one_host) {
    throw Error(Errc::unsupported,
                fmt::format("the ranks {} cannot meet, because rank 0 would serve their store: put "
                            "it first, or start the program with hvdrun or torchrun",
                            fmt::join(ranks, ", ")));
  }
  config.rank = static_cast<int>(own - ranks.begin());
  config.size = static_cast<int>(ranks.size());
  config.local_size = one_host ? config.size : -1;
  config.local_rank = config.cross_rank = config.cross_size = -1;
  return config;
}

/// Returns how often this process has called it for this job and its store before.
std::uint32_t count_of_job(const Config& config) {
  static std::mutex mutex;
  static std::map<std::string, std::uint32_t> counts;
  const std::lock_guard lock(mutex);
  return counts[fmt::format("{} {} {} {} {}", config.job_id, config.epoch, config.rank,
                            fmt::join(config.ranks, ","), config.store_address)]++;
}

}  // namespace

struct Session::Impl {
  Config config;
  Deadline start_deadline;
  EventLoop loop;
  std::shared_ptr<Store> launcher_store;  // of PMIx or torchrun; the session keeps it connected
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  std::optional<Bootstrap> bootstrap;
  std::unique_ptr<PeerNetwork> network;
  Topology topology;
  const std::shared_ptr<WakeEvent> interrupt = std::make_shared<WakeEvent>();
  std::optional<StartWatch> watch;  // of Config::interrupt_fd; ends before what it interrupts

  explicit Impl(Config given)
      : config(std::move(given)), start_deadline(Clock::now() + config.start_timeout) {}

  Identity identity(const Secret& secret) const {
    return {config.job_id, config.epoch, config.rank, secret};
  }

  void join(std::shared_ptr<Store> given) {
    const bool watched = config.interrupt_fd >= 0;
    if (watched) watch.emplace(loop, config.interrupt_fd, [this] { interrupt->raise(); });
    Secret secret;
    if (given) {
      store = std::move(given);
      secret = secret_of(config);
    } else {
      secret = find_store();
    }
    bootstrap.emplace(*store, config.rank, config.size, start_deadline, job_in_launch(config));
    network = std::make_unique<PeerNetwork>(loop, *bootstrap, identity(secret), config.interfaces);
    if (watched) {
      watch.emplace(loop, config.interrupt_fd, [this] {
        interrupt->raise();
        network->abort();
      });
    }
    topology = make_topology(config.rank, network->hosts());
  }

  /// Connects `store` and returns the secret that the peers share.
  Secret find_store() {
    switch (config.rendezvous) {
      case Rendezvous::store: {
        const Secret secret = secret_of(config);
        store = connect_store(config.store_address, identity(secret), start_deadline, interrupt);
        return secret;
      }
      case Rendezvous::hosted:
        return use(connect_hosted_store(loop, config, secret_of(config), start_deadline));
      case Rendezvous::pmix:
        return find_store_over_pmix();
      case Rendezvous::agent:
        return find_store_at_agent();
      case Rendezvous::none:
        break;
    }
    if (config.size > 1) throw Error(Errc::invalid_argument, no_store_message(config));
    store = make_hash_store();
    return {};
  }

  Secret use(ConnectedStore connected) {
    server = std::move(connected.server);
    store = std::move(connected.store);
    return connected.secret;
  }

  Secret find_store_over_pmix() {
    launcher_store = connect_pmix_store(config);
    if (launcher_store) {
      return use(
          connect_announced_store(loop, config, *launcher_store, "hvd/store", {}, start_deadline));
    }
    if (config.local_size == config.size) {
      config.store_address = "unix:@";
      return use(connect_hosted_store(loop, config, {}, start_deadline));
    }
    throw Error(Errc::unsupported,
                "started by an MPI launcher, but PMIx is not available to this process or build; "
                "HVD_RENDEZVOUS=host:port and HVD_SECRET_FILE do without it");
  }

  /// torchrun's store is as open as torchrun itself: whoever reaches its port can read its keys.
  Secret find_store_at_agent() {
    const ConnectAgentStore connect = agent_store();
    if (connect == nullptr) {
      throw Error(Errc::unsupported,
                  fmt::format("torchrun's agent listens at {} and this program does not speak to "
                              "it: include <hvd/torch.hpp>, or set HVD_RENDEZVOUS=host:port of "
                              "rank 0's host and HVD_SECRET_FILE",
                              config.store_address));
    }
    const Secret secret = secret_of(config);
    if (secret.empty() && config.rank == 0 && config.generation == 0) {
      log(LogLevel::warn, config.rank,
          "the job's secret goes through torchrun's store, which is open to whoever reaches its "
          "port; HVD_SECRET_FILE keeps it out of there");
    }
    launcher_store = connect(config.store_address, start_deadline);
    const std::string label = fmt::format("hvd/{}/{}/store", config.job_id, config.epoch);
    return use(
        connect_announced_store(loop, config, *launcher_store, label, secret, start_deadline));
  }
};

Session::Session(Config config, std::shared_ptr<Store> store)
    : impl_(std::make_unique<Impl>(checked(std::move(config)))) {
  std::uint32_t& generation = impl_->config.generation;
  if (!store && generation == 0) generation = count_of_job(impl_->config);
  const Config& settings = impl_->config;
  set_log_level(settings.log_level);
  try {
    impl_->join(std::move(store));
  } catch (const std::exception& error) {
    write_error_file(settings.error_file, error.what());
    throw;
  }
}

Session::~Session() = default;

void Session::started() {
  impl_->watch.reset();
  if (impl_->interrupt->raised()) throw Error(Errc::aborted, "aborted while connecting");
}

const Config& Session::config() const noexcept { return impl_->config; }
const Topology& Session::topology() const noexcept { return impl_->topology; }
EventLoop& Session::loop() noexcept { return impl_->loop; }
PeerNetwork& Session::network() noexcept { return *impl_->network; }
const Bootstrap& Session::bootstrap() const noexcept { return *impl_->bootstrap; }
Deadline Session::start_deadline() const noexcept { return impl_->start_deadline; }

}  // namespace hvd
