#include "coordinator/messages.hpp"

#include <chrono>

namespace hvd {
namespace {

constexpr std::size_t kMaxText = 64 * 1024;
constexpr std::size_t kMinRequest = 36;  // bytes of a request without name and dimensions

template <class Enum>
Enum read_enum(WireReader& reader, int count) {
  const std::uint8_t value = reader.u8();
  if (value >= count) reader.fail("value out of range");
  return static_cast<Enum>(value);
}

// Thousands of ranks make long sentences; the start says enough.
void write_clipped(WireWriter& out, std::string_view text) { out.text(text.substr(0, kMaxText)); }

void write_dimensions(WireWriter& out, const std::vector<std::int64_t>& dimensions) {
  out.u32(static_cast<std::uint32_t>(dimensions.size()));
  for (const std::int64_t dimension : dimensions) out.i64(dimension);
}

std::vector<std::int64_t> read_dimensions(WireReader& in) {
  std::vector<std::int64_t> dimensions(in.count(sizeof(std::int64_t)));
  for (std::int64_t& dimension : dimensions) {
    dimension = in.i64();
    if (dimension < 0) in.fail("negative dimension");
  }
  return dimensions;
}

void write(WireWriter& out, const Request& request) {
  out.text(request.name);
  out.u8(static_cast<std::uint8_t>(request.kind));
  out.u8(static_cast<std::uint8_t>(request.dtype));
  out.u8(static_cast<std::uint8_t>(request.op));
  out.u8(static_cast<std::uint8_t>(request.device.kind));
  out.i32(request.device.index);
  write_dimensions(out, request.shape);
  out.i32(request.root);
  out.f64(request.prescale);
  out.f64(request.postscale);
}

Request read_request(WireReader& in) {
  Request request;
  request.name = in.text(kMaxNameBytes);
  request.kind = read_enum<OpKind>(in, kOpKindCount);
  request.dtype = read_enum<DType>(in, kDTypeCount);
  request.op = read_enum<ReduceOp>(in, kReduceOpCount);
  request.device.kind = read_enum<Device::Kind>(in, 2);
  request.device.index = in.i32();
  request.shape = read_dimensions(in);
  if (request.kind == OpKind::allgather && request.shape.empty()) in.fail("allgather of a scalar");
  request.root = in.i32();
  request.prescale = in.f64();
  request.postscale = in.f64();
  return request;
}

void write(WireWriter& out, const Batch& batch) {
  out.u32(static_cast<std::uint32_t>(batch.names.size()));
  for (const std::string& name : batch.names) out.text(name);
  out.u32(static_cast<std::uint32_t>(batch.first_dimensions.size()));
  for (const auto& dimensions : batch.first_dimensions) write_dimensions(out, dimensions);
}

Batch read_batch(WireReader& in) {
  Batch batch;
  batch.names.resize(in.count(sizeof(std::uint32_t)));
  for (std::string& name : batch.names) name = in.text(kMaxNameBytes);
  batch.first_dimensions.resize(in.count(sizeof(std::uint32_t)));
  for (auto& dimensions : batch.first_dimensions) dimensions = read_dimensions(in);
  if (batch.names.empty()) in.fail("empty batch");
  if (!batch.first_dimensions.empty() && batch.first_dimensions.size() != batch.names.size()) {
    in.fail("first dimensions for some tensors only");
  }
  return batch;
}

void write(WireWriter& out, const Rejection& rejection) {
  out.text(rejection.name);
  out.u8(static_cast<std::uint8_t>(rejection.code));
  write_clipped(out, rejection.message);
}

Errc read_code(WireReader& in) { return read_enum<Errc>(in, static_cast<int>(Errc::internal) + 1); }

Rejection read_rejection(WireReader& in) {
  Rejection rejection;
  rejection.name = in.text(kMaxNameBytes);
  rejection.code = read_code(in);
  rejection.message = in.text(kMaxText);
  return rejection;
}

// One body per alternative of Message, in the order of the variant, which is the type's number.
void write_body(WireWriter& out, const Submitted& message) {
  out.u32(static_cast<std::uint32_t>(message.requests.size()));
  for (const Request& request : message.requests) write(out, request);
}
void write_body(WireWriter&, const Goodbye&) {}
void write_body(WireWriter& out, const Suspicion& message) {
  out.u8(static_cast<std::uint8_t>(message.code));
  out.i32(message.rank);
  write_clipped(out, message.cause);
}
void write_body(WireWriter& out, const Schedule& message) {
  out.u32(static_cast<std::uint32_t>(message.decisions.size()));
  for (const Decision& decision : message.decisions) {
    out.u8(static_cast<std::uint8_t>(decision.index()));
    std::visit([&out](const auto& body) { write(out, body); }, decision);
  }
}
void write_body(WireWriter&, const Farewell&) {}
void write_body(WireWriter& out, const Poison& message) {
  out.u8(static_cast<std::uint8_t>(message.code));
  out.i32(message.fault.rank);
  for (const std::string* text :
       {&message.fault.host, &message.fault.cause, &message.fault.phase, &message.fault.tensor}) {
    write_clipped(out, *text);
  }
  out.i64(message.fault.elapsed.count());
}
void write_body(WireWriter&, const Heartbeat&) {}

Submitted read_submitted(WireReader& in) {
  Submitted message;
  message.requests.resize(in.count(kMinRequest));
  for (Request& request : message.requests) request = read_request(in);
  return message;
}

Suspicion read_suspicion(WireReader& in) {
  Suspicion message;
  message.code = read_code(in);
  message.rank = in.i32();
  message.cause = in.text(kMaxText);
  return message;
}

Schedule read_schedule(WireReader& in) {
  Schedule message;
  message.decisions.resize(in.count(sizeof(std::uint32_t)));
  for (Decision& decision : message.decisions) {
    switch (in.u8()) {
      case 0:
        decision = read_batch(in);
        break;
      case 1:
        decision = read_rejection(in);
        break;
      default:
        in.fail("unknown decision");
    }
  }
  return message;
}

Poison read_poison(WireReader& in) {
  Poison message;
  message.code = read_code(in);
  message.fault.rank = in.i32();
  for (std::string* text :
       {&message.fault.host, &message.fault.cause, &message.fault.phase, &message.fault.tensor}) {
    *text = in.text(kMaxText);
  }
  message.fault.elapsed = std::chrono::milliseconds(in.i64());
  return message;
}

Message read_body(std::uint8_t type, WireReader& in) {
  switch (type) {
    case 0:
      return read_submitted(in);
    case 1:
      return Goodbye{};
    case 2:
      return read_suspicion(in);
    case 3:
      return read_schedule(in);
    case 4:
      return Farewell{};
    case 5:
      return read_poison(in);
    case 6:
      return Heartbeat{};
    default:
      in.fail("unknown message type");
  }
}

}  // namespace

Bytes encode(const Message& message) {
  WireWriter out;
  out.u8(static_cast<std::uint8_t>(message.index()));
  std::visit([&out](const auto& body) { write_body(out, body); }, message);
  return out.take();
}

Message decode_message(std::span<const std::byte> bytes) {
  WireReader in(bytes, "control message");
  const std::uint8_t type = in.u8();
  Message message = read_body(type, in);
  in.finish();
  return message;
}

}  // namespace hvd
