#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/store.hpp>

#include "net/dial.hpp"
#include "net/frame.hpp"
#include "net/handshake.hpp"
#include "store/store_protocol.hpp"

namespace hvd {

using namespace detail;

namespace {

class StoreClient final : public Store {
 public:
  StoreClient(const std::string& address, const Identity& identity, Deadline deadline,
              std::shared_ptr<const net::Interrupt> interrupt)
      : address_(address),
        prefix_(fmt::format("{}/{}/", identity.job_id, identity.epoch)),
        interrupt_(std::move(interrupt)) {
    net::DialOptions options;
    options.address = Address::parse(address);
    if (options.address.kind == Address::Kind::tcp && identity.secret.empty()) {
      throw Error(Errc::unauthenticated,
                  "a store on TCP needs a secret; name it in HVD_SECRET_FILE");
    }
    options.label = kStoreLabel;
    options.deadline = deadline;
    options.peer = net::kAnyRank;
    stream_ = net::dial(options, identity, *interrupt_);
  }

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override {
    check_store_value(key, value.size());
    ask(StoreVerb::set, key, deadline, Bytes(value.begin(), value.end()));
  }

  std::optional<Bytes> get(std::string_view key, Deadline deadline) override {
    StoreReply reply = ask(StoreVerb::get, key, deadline);
    if (reply.outcome == StoreOutcome::missing) return std::nullopt;
    return std::move(reply.value);
  }

  Bytes wait(std::string_view key, Deadline deadline) override {
    return std::move(ask(StoreVerb::wait, key, deadline).value);
  }

  std::vector<Bytes> wait_all(std::string_view prefix, int count, Deadline deadline) override {
    const auto keys = static_cast<std::uint32_t>(count);
    const Bytes all = ask(StoreVerb::wait_all, prefix, deadline, {}, keys).value;
    WireReader reader(all, "store values");
    std::vector<Bytes> values;
    for (std::uint32_t i = 0; i < keys; ++i) {
      const std::span<const std::byte> value = reader.blob(kMaxStoreValue);
      values.emplace_back(value.begin(), value.end());
    }
    reader.finish();
    return values;
  }

 private:
  StoreReply ask(StoreVerb verb, std::string_view key, Deadline deadline, Bytes value = {},
                 std::uint32_t count = 0) {
    check_store_key(key);
    if (!stream_) lost("connection given up earlier");
    const StoreRequest request{++last_id_, verb, prefix_ + std::string(key), std::move(value),
                               count};
    try {
      send(request, key, deadline);
      for (;;) {
        StoreReply reply = receive(key, deadline);
        // Replies to requests that timed out may still arrive.
        if (reply.id != request.id) continue;
        if (reply.outcome == StoreOutcome::full) {
          throw Error(Errc::resource, fmt::format("the store at {} is full", address_));
        }
        return reply;
      }
    } catch (const net::StreamLost& error) {
      lost(error.what());
    } catch (const Error& error) {
      if (error.code() == Errc::protocol) stream_.reset();
      throw;
    }
  }

  void send(const StoreRequest& request, std::string_view key, Deadline deadline) {
    const Bytes frame = net::encode_frame(net::FrameType::store_request, encode(request));
    if (net::write_all(stream_.get(), frame, deadline, *interrupt_)) return;
    // Part of the frame may have been sent, after which the server would misread anything.
    stream_.reset();
    timed_out(key);
  }

  // When the deadline cuts a reply, its first part stays in `input_`, and the next call reads on.
  StoreReply receive(std::string_view key, Deadline deadline) {
    fill(net::kFrameHeaderSize, key, deadline);
    const net::FrameHeader header =
        net::decode_frame_header(std::span(input_).first(net::kFrameHeaderSize),
                                 net::FrameType::store_reply, kMaxStoreReply + 1024);
    fill(net::kFrameHeaderSize + header.length, key, deadline);
    const StoreReply reply = decode_store_reply(std::span(input_).subspan(net::kFrameHeaderSize));
    input_.clear();
    return reply;
  }

  void fill(std::size_t size, std::string_view key, Deadline deadline) {
    std::array<std::byte, 16384> chunk;
    while (input_.size() < size) {
      const std::size_t wanted = std::min(chunk.size(), size - input_.size());
      const std::size_t got =
          net::read_some(stream_.get(), std::span(chunk).first(wanted), deadline, *interrupt_);
      if (got == 0) timed_out(key);
      input_.insert(input_.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(got));
    }
  }

  [[noreturn]] void timed_out(std::string_view key) const {
    throw Error(Errc::timeout,
                fmt::format("the store key '{}' was not answered in time by {}", key, address_));
  }

  [[noreturn]] void lost(std::string_view cause) {
    stream_.reset();
    throw Error(Errc::peer_lost, fmt::format("the store at {} is gone: {}", address_, cause));
  }

  std::string address_;
  std::string prefix_;
  std::shared_ptr<const net::Interrupt> interrupt_;
  UniqueFd stream_;
  std::uint32_t last_id_ = 0;
  Bytes input_;
};

}  // namespace

std::shared_ptr<Store> connect_store(const std::string& address, const Identity& identity,
                                     Deadline deadline,
                                     std::shared_ptr<const WakeEvent> interrupt) {
  return std::make_shared<StoreClient>(address, identity, deadline, std::move(interrupt));
}

}  // namespace hvd
