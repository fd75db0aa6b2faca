#include "policy/messages.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <type_traits>

namespace hvd::detail {
namespace {

constexpr std::size_t kMaxText = 64 * 1024;
constexpr std::size_t kLeastRequest = 58;  // bytes of a request without its texts and lists

/// Writes fields. `Reader` has the same functions, so that each message lists its fields once, in
/// the order of the wire, for both directions.
class Writer {
 public:
  static constexpr bool kReads = false;

  void u32(std::uint32_t value) { out_.u32(value); }
  void u64(std::uint64_t value) { out_.u64(value); }
  void i32(std::int32_t value) { out_.i32(value); }
  void i64(std::int64_t value) { out_.i64(value); }
  void f64(double value) { out_.f64(value); }
  void flag(bool value) { out_.u8(value ? 1 : 0); }
  template <class Enum>
  void choice(Enum value, int) {
    out_.u8(static_cast<std::uint8_t>(value));
  }
  /// A text that names thousands of ranks is long, and its start is enough.
  void text(std::string_view text, std::size_t limit) { out_.text(text.substr(0, limit)); }
  template <class Item, class Each>
  void list(const std::vector<Item>& items, std::size_t, Each each) {
    out_.u32(static_cast<std::uint32_t>(items.size()));
    for (const Item& item : items) each(item);
  }
  void require(bool, std::string_view) {}

  [[nodiscard]] Bytes take() { return out_.take(); }

 private:
  WireWriter out_;
};

/// Reads fields. Throws Errc::protocol for what no `Writer` writes.
class Reader {
 public:
  static constexpr bool kReads = true;

  Reader(std::span<const std::byte> bytes, std::string_view what) : in_(bytes, what) {}

  void u32(std::uint32_t& value) { value = in_.u32(); }
  void u64(std::uint64_t& value) { value = in_.u64(); }
  void i32(std::int32_t& value) { value = in_.i32(); }
  void i64(std::int64_t& value) { value = in_.i64(); }
  void f64(double& value) { value = in_.f64(); }
  void flag(bool& value) { value = index(2) == 1; }
  template <class Enum>
  void choice(Enum& value, int count) {
    value = static_cast<Enum>(index(count));
  }
  void text(std::string& text, std::size_t limit) { text = in_.text(limit); }
  /// Each item takes at least `least` bytes, which bounds the memory for the list.
  template <class Item, class Each>
  void list(std::vector<Item>& items, std::size_t least, Each each) {
    items.resize(in_.count(least));
    for (Item& item : items) each(item);
  }
  void require(bool condition, std::string_view otherwise) {
    if (!condition) in_.fail(otherwise);
  }

  [[nodiscard]] std::uint8_t index(int count) {
    const std::uint8_t value = in_.u8();
    require(value < count, "value out of range");
    return value;
  }
  void finish() const { in_.finish(); }

 private:
  WireReader in_;
};

/// Is the type of a value that a `Writer` only reads and a `Reader` sets.
template <class Io, class T>
using Of = std::conditional_t<Io::kReads, T, const T>;

template <class Io>
void dimensions(Io& io, Of<Io, std::vector<std::int64_t>>& values) {
  io.list(values, sizeof(std::int64_t), [&io](auto& value) {
    io.i64(value);
    io.require(value >= 0, "negative dimension");
  });
}

template <class Io>
void ascending_ranks(Io& io, Of<Io, std::vector<int>>& ranks) {
  int before = -1;
  io.list(ranks, sizeof(std::int32_t), [&](auto& rank) {
    io.i32(rank);
    io.require(rank > before, "ranks out of order");
    io.require(rank < std::numeric_limits<int>::max(), "rank out of range");
    before = rank;
  });
}

/// Handles a list that is empty or has an entry for each of `tensors` tensors.
template <class Io>
void rows_of(Io& io, Of<Io, std::vector<std::vector<std::int64_t>>>& rows, std::size_t tensors) {
  io.list(rows, sizeof(std::uint32_t), [&io](auto& of_tensor) { dimensions(io, of_tensor); });
  io.require(rows.empty() || rows.size() == tensors, "rows for some tensors only");
}

template <class Io>
void error_code(Io& io, Of<Io, Errc>& code) {
  io.choice(code, static_cast<int>(Errc::internal) + 1);
}

template <class Io>
void fields(Io& io, Of<Io, Request>& request) {
  io.text(request.name, kMaxNameBytes);
  io.choice(request.kind, kOpKindCount);
  io.choice(request.dtype, kDTypeCount);
  io.choice(request.op, kReduceOpCount);
  io.choice(request.device.kind, 2);
  io.i32(request.device.index);
  dimensions(io, request.shape);
  io.require(!needs_rows(request.kind) || !request.shape.empty(), "a scalar has no rows");
  io.i32(request.root);
  io.f64(request.prescale);
  io.f64(request.postscale);
  io.i32(request.process_set);
  io.text(request.group, kMaxNameBytes);
  io.i32(request.group_size);
  dimensions(io, request.splits);
  io.flag(request.over_contributors);
  io.flag(request.f32_memory);
}

template <class Io>
void requests_of(Io& io, Of<Io, std::vector<Request>>& requests) {
  io.list(requests, kLeastRequest, [&io](auto& request) { fields(io, request); });
}

template <class Io>
void fields(Io& io, Of<Io, FusedBatch>& batch) {
  io.i32(batch.process_set);
  io.list(batch.names, sizeof(std::uint32_t), [&io](auto& name) { io.text(name, kMaxNameBytes); });
  io.require(!batch.names.empty(), "empty batch");
  rows_of(io, batch.rows, batch.names.size());
  requests_of(io, batch.requests);
  io.require(batch.requests.empty() || batch.requests.size() == batch.names.size(),
             "requests for some tensors only");
  io.i32(batch.contributors);
}

template <class Io>
void fields(Io& io, Of<Io, Rejection>& rejection) {
  io.i32(rejection.process_set);
  io.text(rejection.name, kMaxNameBytes);
  error_code(io, rejection.code);
  io.text(rejection.message, kMaxText);
}

template <class Io>
void fields(Io& io, Of<Io, SetAdded>& added) {
  io.text(added.name, kMaxNameBytes);
  io.i32(added.id);
  ascending_ranks(io, added.ranks);
}

template <class Io>
void fields(Io& io, Of<Io, SetRemoved>& removed) {
  io.text(removed.name, kMaxNameBytes);
  io.i32(removed.id);
}

template <class Io>
void fields(Io& io, Of<Io, AllJoined>& joined) {
  io.i32(joined.last);
}

template <class Io>
void fields(Io& io, Of<Io, FrozenSchedule>& plan) {
  io.list(plan.batches, 4 * sizeof(std::uint32_t), [&io](auto& batch) {
    io.i32(batch.process_set);
    ascending_ranks(io, batch.members);
    requests_of(io, batch.requests);
    io.require(!batch.requests.empty(), "empty batch");
    rows_of(io, batch.rows, batch.requests.size());
  });
  io.require(!plan.batches.empty(), "empty plan");
}

template <class Io>
void fields(Io& io, Of<Io, Freeze>& freeze) {
  io.u32(freeze.epoch);
  fields(io, freeze.plan);
}

/// Writes a variant as the index of its alternative in a byte, followed by that alternative's
/// fields.
template <class... Alternatives>
void variant(Writer& io, const std::variant<Alternatives...>& value) {
  io.choice(value.index(), sizeof...(Alternatives));
  std::visit([&io](const auto& alternative) { fields(io, alternative); }, value);
}
template <class... Alternatives>
void variant(Reader& io, std::variant<Alternatives...>& value) {
  const std::uint8_t index = io.index(sizeof...(Alternatives));
  std::uint8_t next = 0;
  const auto read = [&]<class Alternative>() {
    if (next++ == index) fields(io, value.template emplace<Alternative>());
  };
  (read.template operator()<Alternatives>(), ...);
}

template <class Io>
void fields(Io& io, Of<Io, Submitted>& message) {
  io.u32(message.epoch);
  io.list(message.operations, kLeastRequest, [&io](auto& operation) {
    fields(io, operation.request);
    io.u32(operation.segment);
  });
}
template <class Io>
void fields(Io& io, Of<Io, ShutdownRequested>& message) {
  io.u32(message.epoch);
}
template <class Io>
void fields(Io& io, Of<Io, Suspicion>& message) {
  error_code(io, message.code);
  io.i32(message.rank);
  io.text(message.cause, kMaxText);
}
template <class Io>
void fields(Io& io, Of<Io, Schedule>& message) {
  io.list(message.decisions, sizeof(std::uint32_t),
          [&io](auto& decision) { variant(io, decision); });
}
template <class Io>
void fields(Io&, Of<Io, ShutdownAcknowledged>&) {}
template <class Io>
void fields(Io& io, Of<Io, Abort>& message) {
  error_code(io, message.code);
  io.i32(message.fault.rank);
  for (auto* const text :
       {&message.fault.host, &message.fault.cause, &message.fault.phase, &message.fault.tensor}) {
    io.text(*text, kMaxText);
  }
  std::int64_t elapsed = message.fault.elapsed.count();
  io.i64(elapsed);
  if constexpr (Io::kReads) message.fault.elapsed = std::chrono::milliseconds(elapsed);
}
/// Handles a time in seconds, or its square.
template <class Io>
void seconds(Io& io, Of<Io, double>& value) {
  io.f64(value);
  io.require(std::isfinite(value) && value >= 0, "no time");
}
template <class Io>
void fields(Io& io, Of<Io, BlockedTime>& time) {
  io.i32(time.rank);
  seconds(io, time.mean);
  seconds(io, time.variance);
}
template <class Io>
void fields(Io& io, Of<Io, Heartbeat>& message) {
  io.u32(message.times.ranks);
  seconds(io, message.times.step);
  fields(io, message.times.least);
  fields(io, message.times.second);
  io.i32(message.slowest.rank);
  seconds(io, message.slowest.cost);
  seconds(io, message.slowest.step);
}
template <class Io>
void fields(Io& io, Of<Io, ThawRequest>& message) {
  io.u32(message.epoch);
}
template <class Io>
void fields(Io& io, Of<Io, Stopped>& message) {
  io.u32(message.epoch);
  io.u64(message.sequence);
}
template <class Io>
void fields(Io& io, Of<Io, Thaw>& message) {
  io.u32(message.epoch);
}
template <class Io>
void fields(Io& io, Of<Io, Resume>& message) {
  io.u32(message.epoch);
  io.list(message.begun, sizeof(std::uint64_t), [&io](auto& sequence) { io.u64(sequence); });
}
template <class Io>
void fields(Io& io, Of<Io, PeerLost>& message) {
  io.i32(message.rank);
  io.text(message.cause, kMaxText);
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

Bytes encode(const FrozenSchedule& plan) {
  Writer io;
  fields(io, plan);
  return io.take();
}

Bytes encode(const Message& message) {
  Writer io;
  variant(io, message);
  return io.take();
}

Message decode_message(std::span<const std::byte> bytes) {
  Reader io(bytes, "control message");
  Message message;
  variant(io, message);
  io.finish();
  return message;
}

}  // namespace hvd::detail
