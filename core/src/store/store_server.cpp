#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/store.hpp>

#include "net/acceptor.hpp"
#include "net/frame_stream.hpp"
#include "store/store_protocol.hpp"

namespace hvd {
namespace {

constexpr std::size_t kMaxHeld = std::size_t{256} << 20;  // keys and values together
constexpr std::size_t kMaxKeys = 1'000'000;
constexpr std::size_t kMaxBacklog = 4 * kMaxStoreMessage;  // replies that a client does not read

/// The keys and the clients. Loop thread only, but for the constructor.
class StoreTable final : private net::FrameStream::Listener {
 public:
  StoreTable(EventLoop& loop, int rank) : loop_(loop), rank_(rank) {}

  void add_client(UniqueFd fd) {
    constexpr net::FrameRules kRules{net::FrameType::store_request, net::FrameType::store_reply,
                                     kMaxStoreMessage};
    auto stream = std::make_shared<net::FrameStream>(loop_, std::move(fd), kRules);
    clients_.emplace(stream.get(), Client{stream, std::nullopt});
    stream->start(*this);
  }

  void close() noexcept {
    for (auto& [stream, client] : clients_) client.stream->close();
    clients_.clear();
  }

 private:
  struct Client {
    std::shared_ptr<net::FrameStream> stream;
    std::optional<StoreRequest> waiting;  // a client's next request takes its wait back
  };

  void on_frame(net::FrameStream& stream, std::span<const std::byte> payload) override {
    StoreRequest request = decode_store_request(payload);
    Client& client = clients_.at(&stream);
    client.waiting.reset();
    switch (request.verb) {
      case StoreVerb::set:
        return set(client, std::move(request));
      case StoreVerb::get:
      case StoreVerb::wait:
        break;
    }
    const auto found = values_.find(request.key);
    if (found != values_.end()) {
      reply(client, {request.id, StoreOutcome::value, found->second});
    } else if (request.verb == StoreVerb::get) {
      reply(client, {request.id, StoreOutcome::missing, {}});
    } else {
      client.waiting = std::move(request);
    }
  }

  void on_end(net::FrameStream& stream, const std::string& cause) override {
    log(LogLevel::debug, rank_, fmt::format("a client of the store has gone: {}", cause));
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
    const Bytes& value =
        values_.insert_or_assign(request.key, std::move(request.value)).first->second;
    reply(client, {request.id, StoreOutcome::done, {}});
    answer_waits(request.key, value);
  }

  void answer_waits(const std::string& key, const Bytes& value) {
    for (auto& [stream, client] : clients_) {
      if (!client.waiting || client.waiting->key != key) continue;
      reply(client, {client.waiting->id, StoreOutcome::value, value});
      client.waiting.reset();
    }
  }

  // Never ends a stream at once: the caller may be walking over the clients.
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

}  // namespace hvd
