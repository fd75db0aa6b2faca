#include "store/store_protocol.hpp"

#include <hvd/core/internal/text.hpp>

namespace hvd::detail {

Bytes encode(const StoreRequest& request) {
  WireWriter writer;
  writer.u32(request.id);
  writer.u8(static_cast<std::uint8_t>(request.verb));
  writer.text(request.key);
  if (request.verb == StoreVerb::set) writer.blob(request.value);
  if (request.verb == StoreVerb::wait_all) writer.u32(request.count);
  return writer.take();
}

Bytes encode(const StoreReply& reply) {
  WireWriter writer;
  writer.u32(reply.id);
  writer.u8(static_cast<std::uint8_t>(reply.outcome));
  if (reply.outcome == StoreOutcome::value) writer.blob(reply.value);
  return writer.take();
}

StoreRequest decode_store_request(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "store request");
  StoreRequest request;
  request.id = reader.u32();
  const std::uint8_t verb = reader.u8();
  if (verb < 1 || verb > 4) reader.fail("unknown verb");
  request.verb = static_cast<StoreVerb>(verb);
  request.key = reader.text(kMaxStorePrefix + kMaxStoreKey);
  if (request.key.empty() || !is_graphic(request.key))
    reader.fail("the key is empty or not printable");
  if (request.verb == StoreVerb::set) {
    const std::span<const std::byte> value = reader.blob(kMaxStoreValue);
    request.value.assign(value.begin(), value.end());
  }
  if (request.verb == StoreVerb::wait_all) request.count = reader.u32();
  reader.finish();
  return request;
}

StoreReply decode_store_reply(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "store reply");
  StoreReply reply;
  reply.id = reader.u32();
  const std::uint8_t outcome = reader.u8();
  if (outcome < 1 || outcome > 4) reader.fail("unknown outcome");
  reply.outcome = static_cast<StoreOutcome>(outcome);
  if (reply.outcome == StoreOutcome::value) {
    const std::span<const std::byte> value = reader.blob(kMaxStoreReply);
    reply.value.assign(value.begin(), value.end());
  }
  reader.finish();
  return reply;
}

}  // namespace hvd::detail
