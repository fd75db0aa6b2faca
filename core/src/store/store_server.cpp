#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/log.hpp>

#include "net/acceptor.hpp"
#include "net/frame_stream.hpp"
#include "net/interfaces.hpp"
#include "store/store_protocol.hpp"

namespace hvd {

using namespace detail;

namespace {

constexpr std::size_t kMaxHeld = std::size_t{256} << 20;  // keys and values together
constexpr std::size_t kMaxKeys = 1'000'000;
constexpr std::size_t kMaxBacklog = 4 * kMaxStoreMessage;  // replies that a client does not read

/// Holds the keys and the clients. Only the loop thread may call it, except for the constructor.
class StoreTable final : private net::FrameStream::Listener {
 public:
  StoreTable(EventLoop& loop, int rank) : loop_(loop), rank_(rank) {}

  void add_client(UniqueFd fd) {
    constexpr net::FrameRules kRules{net::FrameType::store_request, net::FrameType::store_reply,
                                     kMaxStoreMessage};
    auto stream = std::make_shared<net::FrameStream>(loop_, std::move(fd), kRules);
    clients_[stream.get()].stream = stream;
    stream->start(*this);
  }

  void close() noexcept {
    for (auto& [stream, client] : clients_) client.stream->close();
    clients_.clear();
    waits_.clear();
  }

 private:
  struct Client;
  using Waits = std::multimap<std::string, Client*>;  // by the key that is missing

  struct Client {
    std::shared_ptr<net::FrameStream> stream;
    StoreRequest request;                  // the last wait or wait_all
    std::uint32_t present = 0;             // the number of the request's keys that are set
    std::optional<Waits::iterator> waits;  // while one of these keys is missing
  };

  void on_frame(net::FrameStream& stream, std::span<const std::byte> payload) override {
    StoreRequest request = decode_store_request(payload);
    Client& client = clients_.at(&stream);
    stop_waiting(client);  // a client's next request ends its wait
    switch (request.verb) {
      case StoreVerb::set:
        return set(client, std::move(request));
      case StoreVerb::get:
        return get(client, request);
      case StoreVerb::wait:
      case StoreVerb::wait_all:
        client.request = std::move(request);
        client.present = 0;
        return answer_or_wait(client);
    }
  }

  void on_end(net::FrameStream& stream, const std::string& cause) override {
    log(LogLevel::debug, rank_, fmt::format("a client of the store has gone: {}", cause));
    stop_waiting(clients_.at(&stream));
    clients_.erase(&stream);
  }

  void set(Client& client, StoreRequest request) {
    const auto old = values_.find(request.key);
    const std::size_t freed = old == values_.end() ? 0 : old->second.size();
    const std::size_t added =
        request.value.size() + (old == values_.end() ? request.key.size() : 0);
    if (held_ - freed + added > kMaxHeld || values_.size() >= kMaxKeys) {
      return reply(client, {request.id, StoreOutcome::full, {}});
    }
    held_ += added - freed;
    values_.insert_or_assign(request.key, std::move(request.value));
    reply(client, {request.id, StoreOutcome::done, {}});
    std::vector<Client*> waiting;
    const auto [first, last] = waits_.equal_range(request.key);
    for (auto wait = first; wait != last; ++wait) waiting.push_back(wait->second);
    for (Client* const one : waiting) {
      stop_waiting(*one);
      answer_or_wait(*one);
    }
  }

  void get(Client& client, const StoreRequest& request) {
    const auto found = values_.find(request.key);
    if (found == values_.end()) return reply(client, {request.id, StoreOutcome::missing, {}});
    reply(client, {request.id, StoreOutcome::value, found->second});
  }

  // Continues at the key at which it waited last, so that a wait for many keys looks at each once.
  void answer_or_wait(Client& client) {
    const StoreRequest& request = client.request;
    const bool all = request.verb == StoreVerb::wait_all;
    for (const std::uint32_t count = all ? request.count : 1; client.present < count;
         ++client.present) {
      const std::string key = all ? numbered(request, client.present) : request.key;
      if (values_.contains(key)) continue;
      client.waits = waits_.emplace(key, &client);
      return;
    }
    if (!all) return reply(client, {request.id, StoreOutcome::value, values_.at(request.key)});
    WireWriter values;
    std::size_t size = 0;
    for (std::uint32_t i = 0; i < request.count; ++i) {
      const Bytes& value = values_.at(numbered(request, i));
      size += sizeof(std::uint32_t) + value.size();
      if (size > kMaxStoreReply) return reply(client, {request.id, StoreOutcome::full, {}});
      values.blob(value);
    }
    reply(client, {request.id, StoreOutcome::value, values.take()});
  }

  static std::string numbered(const StoreRequest& request, std::uint32_t number) {
    return fmt::format("{}{}", request.key, number);
  }

  void stop_waiting(Client& client) {
    if (client.waits) waits_.erase(*client.waits);
    client.waits.reset();
  }

  // A stream is never ended at once, since the caller may be iterating over the clients.
  static void reply(Client& client, const StoreReply& reply) {
    if (client.stream->backlog() > kMaxBacklog) {
      return client.stream->end_later("it does not read its replies");
    }
    client.stream->send(encode(reply));
  }

  EventLoop& loop_;
  int rank_;
  std::map<net::FrameStream*, Client> clients_;
  std::map<std::string, Bytes> values_;
  Waits waits_;
  std::size_t held_ = 0;
};

}  // namespace

struct StoreServer::Impl {
  Impl(EventLoop& event_loop, const Identity& identity)
      : loop(event_loop), table(event_loop, identity.rank) {}

  EventLoop& loop;
  StoreTable table;
  std::shared_ptr<net::Acceptor> acceptor;
  std::string address;
};

StoreServer::StoreServer(EventLoop& loop, const std::string& listen_address,
                         const Identity& identity)
    : impl_(std::make_shared<Impl>(loop, identity)) {
  const Address wanted = Address::parse(listen_address);
  if (wanted.kind == Address::Kind::tcp && identity.secret.empty()) {
    throw Error(Errc::unauthenticated, "a store on TCP needs a secret; name it in HVD_SECRET_FILE");
  }
  net::Listener listener(wanted);
  impl_->address = listener.address().to_string();
  impl_->acceptor = std::make_shared<net::Acceptor>(
      loop, identity, [weak = std::weak_ptr<Impl>(impl_)](UniqueFd stream, const net::Hello& peer) {
        const auto impl = weak.lock();
        if (impl && peer.label == kStoreLabel) impl->table.add_client(std::move(stream));
      });
  loop.run_sync([&] { impl_->acceptor->listen(std::move(listener)); });
}

StoreServer::~StoreServer() {
  impl_->loop.run_sync([this] {
    impl_->acceptor->close();
    impl_->table.close();
  });
}

const std::string& StoreServer::address() const noexcept { return impl_->address; }

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
