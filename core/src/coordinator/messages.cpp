#include "coordinator/messages.hpp"

#include <chrono>

namespace hvd {
namespace {

constexpr std::size_t kMaxText = 64 * 1024;
constexpr std::size_t kMinRequest = 57;  // bytes of a request without its texts and lists

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

void write_ranks(WireWriter& out, const std::vector<int>& ranks) {
  out.u32(static_cast<std::uint32_t>(ranks.size()));
  for (const int rank : ranks) out.i32(rank);
}

/// Ascending, not negative.
std::vector<int> read_ranks(WireReader& in) {
  std::vector<int> ranks(in.count(sizeof(std::int32_t)));
  int least = 0;
  for (int& rank : ranks) {
    rank = in.i32();
    if (rank < least) in.fail("ranks out of order");
    least = rank + 1;
  }
  return ranks;
}

void write_rows(WireWriter& out, const std::vector<std::vector<std::int64_t>>& rows) {
  out.u32(static_cast<std::uint32_t>(rows.size()));
  for (const auto& of_tensor : rows) write_dimensions(out, of_tensor);
}

/// For none or all of `names` names.
std::vector<std::vector<std::int64_t>> read_rows(WireReader& in, std::size_t names) {
  std::vector<std::vector<std::int64_t>> rows(in.count(sizeof(std::uint32_t)));
  for (auto& of_tensor : rows) of_tensor = read_dimensions(in);
  if (!rows.empty() && rows.size() != names) in.fail("rows for some tensors only");
  return rows;
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
  out.i32(request.process_set);
  out.text(request.group);
  out.i32(request.group_size);
  write_dimensions(out, request.splits);
  out.u8(request.over_contributors ? 1 : 0);
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
  if (needs_rows(request.kind) && request.shape.empty()) in.fail("a scalar has no rows");
  request.root = in.i32();
  request.prescale = in.f64();
  request.postscale = in.f64();
  request.process_set = in.i32();
  request.group = in.text(kMaxNameBytes);
  request.group_size = in.i32();
  request.splits = read_dimensions(in);
  const std::uint8_t over_contributors = in.u8();
  if (over_contributors > 1) in.fail("value out of range");
  request.over_contributors = over_contributors == 1;
  return request;
}

void write(WireWriter& out, const std::vector<Request>& requests) {
  out.u32(static_cast<std::uint32_t>(requests.size()));
  for (const Request& request : requests) write(out, request);
}

std::vector<Request> read_requests(WireReader& in) {
  std::vector<Request> requests(in.count(kMinRequest));
  for (Request& request : requests) request = read_request(in);
  return requests;
}

void write(WireWriter& out, const Batch& batch) {
  out.i32(batch.process_set);
  out.u32(static_cast<std::uint32_t>(batch.names.size()));
  for (const std::string& name : batch.names) out.text(name);
  write_rows(out, batch.rows);
  write(out, batch.requests);
  out.i32(batch.contributors);
}

Batch read_batch(WireReader& in) {
  Batch batch;
  batch.process_set = in.i32();
  batch.names.resize(in.count(sizeof(std::uint32_t)));
  for (std::string& name : batch.names) name = in.text(kMaxNameBytes);
  if (batch.names.empty()) in.fail("empty batch");
  batch.rows = read_rows(in, batch.names.size());
  batch.requests = read_requests(in);
  if (!batch.requests.empty() && batch.requests.size() != batch.names.size()) {
    in.fail("requests for some tensors only");
  }
  batch.contributors = in.i32();
  return batch;
}

void write(WireWriter& out, const Rejection& rejection) {
  out.i32(rejection.process_set);
  out.text(rejection.name);
  out.u8(static_cast<std::uint8_t>(rejection.code));
  write_clipped(out, rejection.message);
}

Errc read_code(WireReader& in) { return read_enum<Errc>(in, static_cast<int>(Errc::internal) + 1); }

Rejection read_rejection(WireReader& in) {
  Rejection rejection;
  rejection.process_set = in.i32();
  rejection.name = in.text(kMaxNameBytes);
  rejection.code = read_code(in);
  rejection.message = in.text(kMaxText);
  return rejection;
}

void write(WireWriter& out, const SetAdded& added) {
  out.text(added.name);
  out.i32(added.id);
  write_ranks(out, added.ranks);
}

SetAdded read_set_added(WireReader& in) {
  SetAdded added;
  added.name = in.text(kMaxNameBytes);
  added.id = in.i32();
  added.ranks = read_ranks(in);
  return added;
}

void write(WireWriter& out, const SetRemoved& removed) {
  out.text(removed.name);
  out.i32(removed.id);
}

SetRemoved read_set_removed(WireReader& in) {
  SetRemoved removed;
  removed.name = in.text(kMaxNameBytes);
  removed.id = in.i32();
  return removed;
}

void write(WireWriter& out, const AllJoined& joined) { out.i32(joined.last); }

void write(WireWriter& out, const Plan& plan) {
  out.u32(static_cast<std::uint32_t>(plan.batches.size()));
  for (const PlannedBatch& batch : plan.batches) {
    out.i32(batch.process_set);
    write_ranks(out, batch.members);
    write(out, batch.requests);
    write_rows(out, batch.rows);
  }
}

Plan read_plan(WireReader& in) {
  Plan plan;
  plan.batches.resize(in.count(4 * sizeof(std::uint32_t)));
  for (PlannedBatch& batch : plan.batches) {
    batch.process_set = in.i32();
    batch.members = read_ranks(in);
    batch.requests = read_requests(in);
    if (batch.requests.empty()) in.fail("empty batch");
    batch.rows = read_rows(in, batch.requests.size());
  }
  if (plan.batches.empty()) in.fail("empty plan");
  return plan;
}

void write(WireWriter& out, const Freeze& freeze) {
  out.u32(freeze.epoch);
  write(out, freeze.plan);
}

Freeze read_freeze(WireReader& in) {
  Freeze freeze;
  freeze.epoch = in.u32();
  freeze.plan = read_plan(in);
  return freeze;
}

// One body per alternative of Message, in the order of the variant, which is the type's number.
void write_body(WireWriter& out, const Submitted& message) {
  out.u32(message.epoch);
  out.u32(static_cast<std::uint32_t>(message.operations.size()));
  for (const Announcement& operation : message.operations) {
    write(out, operation.request);
    out.u32(operation.segment);
  }
}
void write_body(WireWriter& out, const Goodbye& message) { out.u32(message.epoch); }
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
void write_body(WireWriter& out, const ThawRequest& message) { out.u32(message.epoch); }
void write_body(WireWriter& out, const Stopped& message) {
  out.u32(message.epoch);
  out.u64(message.ticket);
}
void write_body(WireWriter& out, const Thaw& message) { out.u32(message.epoch); }
void write_body(WireWriter& out, const Resume& message) {
  out.u32(message.epoch);
  out.u32(static_cast<std::uint32_t>(message.begun.size()));
  for (const std::uint64_t ticket : message.begun) out.u64(ticket);
}
void write_body(WireWriter& out, const Lost& message) {
  out.i32(message.rank);
  write_clipped(out, message.cause);
}

Submitted read_submitted(WireReader& in) {
  Submitted message;
  message.epoch = in.u32();
  message.operations.resize(in.count(kMinRequest));
  for (Announcement& operation : message.operations) {
    operation.request = read_request(in);
    operation.segment = in.u32();
  }
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
      case 2:
        decision = read_set_added(in);
        break;
      case 3:
        decision = read_set_removed(in);
        break;
      case 4:
        decision = AllJoined{in.i32()};
        break;
      case 5:
        decision = read_freeze(in);
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

Stopped read_stopped(WireReader& in) {
  Stopped message;
  message.epoch = in.u32();
  message.ticket = in.u64();
  return message;
}

Resume read_resume(WireReader& in) {
  Resume message;
  message.epoch = in.u32();
  message.begun.resize(in.count(sizeof(std::uint64_t)));
  for (std::uint64_t& ticket : message.begun) ticket = in.u64();
  return message;
}

Lost read_lost(WireReader& in) {
  Lost message;
  message.rank = in.i32();
  message.cause = in.text(kMaxText);
  return message;
}

Message read_body(std::uint8_t type, WireReader& in) {
  switch (type) {
    case 0:
      return read_submitted(in);
    case 1:
      return Goodbye{in.u32()};
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
    case 7:
      return ThawRequest{in.u32()};
    case 8:
      return read_stopped(in);
    case 9:
      return Thaw{in.u32()};
    case 10:
      return read_resume(in);
    case 11:
      return read_lost(in);
    default:
      in.fail("unknown message type");
  }
}

}  // namespace

bool is_negotiation(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return false;
  switch (static_cast<std::uint8_t>(bytes.front())) {
    case 0:   // Submitted
    case 3:   // Schedule
    case 7:   // ThawRequest
    case 8:   // Stopped
    case 9:   // Thaw
    case 10:  // Resume
      return true;
    default:
      return false;
  }
}

Bytes encode(const Plan& plan) {
  WireWriter out;
  write(out, plan);
  return out.take();
}

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
