// A peer without the secret, or a network that changes bytes, must not complete a handshake.
#include "check.hpp"
#include "net/handshake.hpp"

namespace {

using namespace hvd;
using namespace hvd::net;
using fuzz::check;

Identity identity(int rank) {
  std::array<std::byte, Secret::kSize> bytes{};
  bytes.fill(std::byte{0x5a});
  return {"job", 1, rank, Secret(bytes)};
}

Handshake make_client() { return Handshake::client(identity(1), 0, "label", Nonce{}); }
Handshake make_server() {
  Nonce nonce{};
  nonce.fill(std::byte{1});
  return Handshake::server(identity(0), nonce);
}

// Feeds `bytes` unchanged.
void feed(Handshake handshake, std::span<const std::byte> bytes) {
  try {
    while (handshake.wanted() > 0 && bytes.size() >= handshake.wanted()) {
      const std::size_t wanted = handshake.wanted();
      handshake.consume(bytes.first(wanted));
      bytes = bytes.subspan(wanted);
      static_cast<void>(handshake.take_output());
    }
    check(!handshake.done());
  } catch (const Error& error) {
    check(error.code() == Errc::protocol || error.code() == Errc::unauthenticated);
  }
}

/// The messages of one honest side, changed by the bytes of `mask`.
class Wire {
 public:
  explicit Wire(std::span<const std::byte> mask) : mask_(mask) {}
  void apply(Bytes& message) {
    for (std::byte& byte : message) {
      if (mask_.empty()) return;
      byte ^= mask_.front();
      changed_ = changed_ || mask_.front() != std::byte{0};
      mask_ = mask_.subspan(1);
    }
  }
  [[nodiscard]] bool changed() const { return changed_; }

 private:
  std::span<const std::byte> mask_;
  bool changed_ = false;
};

void give(Handshake& to, Bytes& bytes) {
  while (to.wanted() > 0 && bytes.size() >= to.wanted()) {
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(to.wanted());
    const Bytes piece(bytes.begin(), end);
    bytes.erase(bytes.begin(), end);
    to.consume(piece);
  }
}

void talk_over(Wire to_server, Wire to_client) {
  Handshake client = make_client();
  Handshake server = make_server();
  Bytes input_of_server;
  Bytes input_of_client;
  try {
    for (int round = 0; round < 4; ++round) {
      Bytes out = client.take_output();
      to_server.apply(out);
      input_of_server.insert(input_of_server.end(), out.begin(), out.end());
      give(server, input_of_server);
      out = server.take_output();
      to_client.apply(out);
      input_of_client.insert(input_of_client.end(), out.begin(), out.end());
      give(client, input_of_client);
    }
  } catch (const Error& error) {
    check(error.code() == Errc::protocol || error.code() == Errc::unauthenticated);
  }
  // A side that completes the handshake has received only unchanged bytes.
  if (client.done()) check(!to_server.changed() && !to_client.changed());
  if (server.done()) check(!to_server.changed());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = fuzz::input(data, size);
  feed(make_client(), bytes);
  feed(make_server(), bytes);
  fuzz::check_canonical(bytes, decode_hello, [](const Hello& hello) { return encode(hello); });
  talk_over(Wire(bytes.first(size / 2)), Wire(bytes.subspan(size / 2)));
  return 0;
}
