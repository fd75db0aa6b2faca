#include "net/handshake.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

namespace hvd::net {
namespace {

// Each message is made under a label of its own, so that none can be played back as another.
constexpr std::string_view kServerProof = "hvd server";
constexpr std::string_view kClientProof = "hvd client";
constexpr std::string_view kServerAccept = "hvd accept";

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

void put_padded(WireWriter& writer, std::string_view text, std::size_t limit,
                std::string_view what) {
  if (text.size() > limit || !is_printable(text)) {
    throw Error(Errc::invalid_argument,
                fmt::format("the {} must be printable and at most {} bytes long", what, limit));
  }
  writer.u8(static_cast<std::uint8_t>(text.size()));
  writer.raw(detail::bytes_of(text));
  writer.raw(Bytes(limit - text.size()));
}

std::string get_padded(WireReader& reader, std::size_t limit) {
  const std::size_t size = reader.u8();
  const std::span<const std::byte> field = reader.raw(limit);
  if (size > limit) reader.fail("a text is longer than its field");
  const std::span<const std::byte> padding = field.subspan(size);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    reader.fail("padding is not zero");
  }
  std::string text(detail::text_of(field.first(size)));
  if (!is_printable(text)) reader.fail("a text is not printable");
  return text;
}

void require_same(std::string_view what, const auto& ours, const auto& theirs) {
  if (ours == theirs) return;
  throw Error(Errc::protocol,
              fmt::format("the peer is of another {}: {} here, {} there", what, ours, theirs));
}

}  // namespace

bool is_label(std::string_view label) noexcept {
  return !label.empty() && label.size() <= kMaxLabel && is_printable(label);
}

Nonce fresh_nonce() {
  Nonce nonce{};
  fill_random(nonce);
  return nonce;
}

Bytes encode(const Hello& hello) {
  WireWriter writer;
  writer.u32(kHandshakeMagic);
  writer.u16(kProtocolVersion);
  writer.u16(static_cast<std::uint16_t>(hello.role));
  writer.raw(hello.nonce);
  writer.u32(hello.epoch);
  writer.i32(hello.from);
  writer.i32(hello.to);
  put_padded(writer, hello.job_id, kMaxJobId, "job id");
  put_padded(writer, hello.label, kMaxLabel, "stream label");
  return writer.take();
}

Hello decode_hello(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "hello");
  if (reader.u32() != kHandshakeMagic) reader.fail("not an hvd stream");
  const std::uint16_t version = reader.u16();
  require_same("protocol version", kProtocolVersion, version);
  const std::uint16_t role = reader.u16();
  if (role != static_cast<std::uint16_t>(Role::client) &&
      role != static_cast<std::uint16_t>(Role::server)) {
    reader.fail("unknown role");
  }
  Hello hello;
  hello.role = static_cast<Role>(role);
  std::ranges::copy(reader.raw(kNonceSize), hello.nonce.begin());
  hello.epoch = reader.u32();
  hello.from = reader.i32();
  hello.to = reader.i32();
  hello.job_id = get_padded(reader, kMaxJobId);
  hello.label = get_padded(reader, kMaxLabel);
  reader.finish();
  return hello;
}

Handshake::Handshake(const Identity& self, const Nonce& nonce, Role role) : secret_(self.secret) {
  self_.role = role;
  self_.nonce = nonce;
  self_.job_id = self.job_id;
  self_.epoch = self.epoch;
  self_.from = self.rank;
}

Handshake Handshake::client(const Identity& self, int peer, std::string_view label,
                            const Nonce& nonce) {
  Handshake handshake(self, nonce, Role::client);
  handshake.self_.to = peer;
  handshake.self_.label = label;
  handshake.own_hello_ = encode(handshake.self_);
  handshake.output_ = handshake.own_hello_;
  return handshake;
}

Handshake Handshake::server(const Identity& self, const Nonce& nonce) {
  Handshake handshake(self, nonce, Role::server);
  handshake.own_hello_ = encode(handshake.self_);  // the answer to a peer that fails early
  return handshake;
}

std::size_t Handshake::wanted() const noexcept {
  switch (state_) {
    case State::prefix:
      return kPrefixSize;
    case State::hello:
      return kHelloSize - kPrefixSize;
    case State::proof:
    case State::accept:
      return kMacSize;
    case State::done:
    case State::failed:
      break;
  }
  return 0;
}

void Handshake::consume(std::span<const std::byte> input) {
  const State state = std::exchange(state_, State::failed);  // unless the step succeeds
  switch (state) {
    case State::prefix:
      take_prefix(input);
      state_ = State::hello;
      return;
    case State::hello:
      take_hello(input);
      state_ = State::proof;
      return;
    case State::proof:
      if (self_.role == Role::server) {
        take_mac(kClientProof, input);
        queue(mac(kServerAccept));
        state_ = State::done;
      } else {
        take_mac(kServerProof, input);
        queue(mac(kClientProof));
        state_ = State::accept;
      }
      return;
    case State::accept:
      take_mac(kServerAccept, input);
      state_ = State::done;
      return;
    case State::done:
    case State::failed:
      throw Error(Errc::internal, "handshake fed after its end");
  }
}

void Handshake::take_prefix(std::span<const std::byte> input) {
  WireReader reader(input, "hello");
  if (reader.u32() != kHandshakeMagic) reader.fail("not an hvd stream");
  const std::uint16_t version = reader.u16();
  const std::uint16_t role = reader.u16();
  reader.finish();
  if (role == static_cast<std::uint16_t>(self_.role)) {
    reader.fail("the peer plays our own role");
  }
  if (version != kProtocolVersion && self_.role == Role::server) queue(own_hello_);
  require_same("protocol version", kProtocolVersion, version);
  peer_hello_.assign(input.begin(), input.end());
}

void Handshake::take_hello(std::span<const std::byte> input) {
  peer_hello_.insert(peer_hello_.end(), input.begin(), input.end());
  peer_ = decode_hello(peer_hello_);
  if (self_.role == Role::server) {
    self_.to = peer_.from;
    self_.label = peer_.label;
    own_hello_ = encode(self_);
    queue(own_hello_);  // sent before the check, so that the client learns what differs
  }
  check_peer();
  if (self_.role == Role::server) queue(mac(kServerProof));
}

void Handshake::check_peer() const {
  require_same("job", self_.job_id, peer_.job_id);
  require_same("epoch", self_.epoch, peer_.epoch);
  const bool for_us =
      peer_.to == self_.from || (self_.role == Role::server && peer_.to == kAnyRank);
  if (!for_us) {
    throw Error(Errc::protocol, fmt::format("rank {} looks for rank {}, this is rank {}",
                                            peer_.from, peer_.to, self_.from));
  }
  const bool asked_for = self_.to == kAnyRank || peer_.from == self_.to;
  if (self_.role == Role::client && (!asked_for || peer_.label != self_.label)) {
    throw Error(Errc::protocol,
                fmt::format("rank {} answers for '{}' where rank {} was asked for '{}'", peer_.from,
                            peer_.label, self_.to, self_.label));
  }
  if (!is_label(peer_.label)) throw Error(Errc::protocol, "a stream without a label");
}

void Handshake::take_mac(std::string_view role_label, std::span<const std::byte> input) {
  if (!equal_in_constant_time(mac(role_label), input)) {
    throw Error(Errc::unauthenticated, fmt::format("rank {} does not hold the secret of job {}",
                                                   peer_.from, self_.job_id));
  }
}

void Handshake::queue(std::span<const std::byte> bytes) {
  output_.insert(output_.end(), bytes.begin(), bytes.end());
}

Mac Handshake::mac(std::string_view role_label) const {
  const bool client = self_.role == Role::client;
  WireWriter transcript;
  transcript.text(role_label);
  transcript.raw(client ? own_hello_ : peer_hello_);
  transcript.raw(client ? peer_hello_ : own_hello_);
  return hmac_sha256(secret_.bytes(), transcript.take());
}

}  // namespace hvd::net
