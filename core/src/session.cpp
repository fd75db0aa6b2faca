#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/session.hpp>

#include "net/interfaces.hpp"
#include "topology.hpp"

namespace hvd {
namespace {

Secret secret_of(const Config& config) {
  if (config.secret_fd >= 0) return Secret::from_fd(config.secret_fd);
  if (!config.secret_file.empty()) return Secret::from_file(config.secret_file);
  return {};
}

// What rank 0 tells the others through PMIx: where its store listens and the job's secret.
struct Invitation {
  std::string address;
  Secret secret;

  [[nodiscard]] Bytes encode() const {
    WireWriter out;
    out.text(address);
    out.raw(secret.bytes());
    return out.take();
  }
  [[nodiscard]] static Invitation decode(std::span<const std::byte> bytes) {
    WireReader in(bytes, "invitation");
    Invitation invitation;
    invitation.address = in.text(512);
    std::array<std::byte, Secret::kSize> secret;
    const auto raw = in.raw(secret.size());
    std::copy(raw.begin(), raw.end(), secret.begin());
    invitation.secret = Secret(secret);
    in.finish();
    return invitation;
  }
};

// A store that outlives a context (hvdrun's, over shutdown and init) still holds its keys, and they
// lead to sockets that are closed.
class GenerationStore final : public Store {
 public:
  GenerationStore(std::shared_ptr<Store> store, std::uint32_t generation)
      : store_(std::move(store)), prefix_(fmt::format("{}/", generation)) {}

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override {
    store_->set(prefix_ + std::string(key), value, deadline);
  }
  std::optional<Bytes> get(std::string_view key, Deadline deadline) override {
    return store_->get(prefix_ + std::string(key), deadline);
  }
  Bytes wait(std::string_view key, Deadline deadline) override {
    return store_->wait(prefix_ + std::string(key), deadline);
  }

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace

struct Session::Impl {
  Config config;
  Deadline start_deadline;
  EventLoop loop;
  std::shared_ptr<Store> pmix;  // stays connected as long as the session
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  std::unique_ptr<PeerNetwork> network;
  Topology topology;

  explicit Impl(Config given)
      : config(std::move(given)), start_deadline(Clock::now() + config.start_timeout) {}

  Identity identity(const Secret& secret) const {
    return {config.job_id, config.epoch, config.rank, secret};
  }

  /// Connects `store`; returns the secret that the peers share.
  Secret meet() {
    switch (config.rendezvous) {
      case Rendezvous::store: {
        const Secret secret = secret_of(config);
        store = connect_store(config.store_address, identity(secret), start_deadline);
        return secret;
      }
      case Rendezvous::pmix:
        return meet_over_pmix();
      case Rendezvous::none:
        break;
    }
    if (config.size > 1) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("{} ranks, but no store to meet in: HVD_STORE is not set", config.size));
    }
    store = make_hash_store();
    return {};
  }

  Secret meet_over_pmix() {
    pmix = connect_pmix_store(config);
    if (!pmix) {
      throw Error(Errc::unsupported,
                  "started by an MPI launcher, but PMIx is not available to this process or build");
    }
    constexpr std::string_view kKey = "hvd/invitation";
    if (config.rank == 0) {
      // One host: a Unix socket that only this host can reach.
      const bool one_host = config.local_size == config.size;
      const Secret secret = Secret::random();
      server = std::make_unique<StoreServer>(
          loop, one_host ? "unix:@" : net::listen_address(config.interfaces, false),
          identity(secret));
      pmix->set(kKey, Invitation{server->address(), secret}.encode(), start_deadline);
    }
    const Invitation invitation = Invitation::decode(pmix->wait(kKey, start_deadline));
    store = connect_store(invitation.address, identity(invitation.secret), start_deadline);
    return invitation.secret;
  }
};

Session::Session(Config config, std::shared_ptr<Store> store)
    : impl_(std::make_unique<Impl>(std::move(config))) {
  const Config& settings = impl_->config;
  if (settings.size < 1 || settings.rank < 0 || settings.rank >= settings.size) {
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} of {}: no such rank", settings.rank, settings.size));
  }
  set_log_level(settings.log_level);
  Secret secret;
  if (store) {
    impl_->store = std::move(store);
    secret = secret_of(settings);
  } else {
    secret = impl_->meet();
  }
  impl_->network =
      std::make_unique<PeerNetwork>(impl_->loop, *impl_->store, impl_->identity(secret),
                                    settings.size, settings.interfaces, impl_->start_deadline);
  impl_->topology = make_topology(settings.rank, impl_->network->hosts());
}

Session::~Session() = default;

const Config& Session::config() const noexcept { return impl_->config; }
const Topology& Session::topology() const noexcept { return impl_->topology; }
EventLoop& Session::loop() noexcept { return impl_->loop; }
PeerNetwork& Session::network() noexcept { return *impl_->network; }
Store& Session::store() noexcept { return *impl_->store; }
Deadline Session::start_deadline() const noexcept { return impl_->start_deadline; }

}  // namespace hvd
