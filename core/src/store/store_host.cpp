#include <hvd/core/event_loop.hpp>
#include <hvd/core/store.hpp>
#include <hvd/core/store_host.hpp>

#include "net/interfaces.hpp"

namespace hvd {

struct StoreHost::Impl {
  Impl(const Config& config, bool one_host)
      : server(loop, one_host ? "unix:@" : net::listen_address(config.interfaces, false),
               Identity{config.job_id, config.epoch, 0, secret}) {}

  const Secret secret = Secret::random();
  EventLoop loop;
  StoreServer server;
};

StoreHost::StoreHost(const Config& config, bool one_host)
    : impl_(std::make_unique<Impl>(config, one_host)) {}

StoreHost::~StoreHost() = default;

const std::string& StoreHost::address() const noexcept { return impl_->server.address(); }

const Secret& StoreHost::secret() const noexcept { return impl_->secret; }

}  // namespace hvd
