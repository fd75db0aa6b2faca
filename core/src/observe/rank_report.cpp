#include <algorithm>

#include <hvd/core/internal/rank_report.hpp>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

std::int64_t read_count(WireReader& from) {
  const std::int64_t count = from.i64();
  if (count < 0) from.fail("a duration is negative");
  return count;
}

void write(WireWriter& to, const RankReport::Pending& pending) {
  to.text(std::string_view(pending.name).substr(0, RankReport::kMaxName));
  to.u8(static_cast<std::uint8_t>(pending.kind));
  to.u8(pending.scheduled ? 1 : 0);
  to.i64(pending.age.count());
  to.i32(pending.process_set);
  const bool told = pending.members.size() <= RankReport::kMaxMembers;
  to.u32(told ? static_cast<std::uint32_t>(pending.members.size()) : 0);
  if (!told) return;
  for (const std::int32_t rank : pending.members) to.i32(rank);
}

RankReport::Pending read_pending(WireReader& from) {
  RankReport::Pending pending;
  pending.name = from.text(RankReport::kMaxName);
  const auto kind = from.u8();
  if (kind >= kOpKindCount) from.fail("no such operation");
  pending.kind = static_cast<OpKind>(kind);
  const auto scheduled = from.u8();
  if (scheduled > 1) from.fail("a flag is neither 0 nor 1");
  pending.scheduled = scheduled == 1;
  pending.age = milliseconds{read_count(from)};
  pending.process_set = from.i32();
  pending.members.resize(from.count(sizeof(std::int32_t)));
  if (pending.members.size() > RankReport::kMaxMembers) from.fail("too many members");
  for (std::int32_t& rank : pending.members) rank = from.i32();
  return pending;
}

}  // namespace

Bytes encode(const RankReport& report) {
  WireWriter to;
  to.i32(report.rank);
  to.i32(report.size);
  to.u64(report.steps);
  to.i64(report.step.count());
  to.i64(report.exposed.count());
  to.i32(report.slowest);
  to.i64(report.slowest_cost.count());
  to.u64(report.operations);
  to.u64(report.bytes);
  to.u32(report.pending);
  const auto shown = std::min(report.oldest.size(), RankReport::kMaxPending);
  to.u32(static_cast<std::uint32_t>(shown));
  for (std::size_t i = 0; i < shown; ++i) write(to, report.oldest[i]);
  return to.take();
}

RankReport decode_rank_report(std::span<const std::byte> bytes) {
  WireReader from(bytes, "rank report");
  RankReport report;
  report.rank = from.i32();
  report.size = from.i32();
  if (report.rank < 0 || report.rank >= report.size) from.fail("a rank outside of its size");
  report.steps = from.u64();
  report.step = nanoseconds{read_count(from)};
  report.exposed = nanoseconds{read_count(from)};
  report.slowest = from.i32();
  if (report.slowest < -1 || report.slowest >= report.size) from.fail("no such rank is slowest");
  report.slowest_cost = nanoseconds{read_count(from)};
  report.operations = from.u64();
  report.bytes = from.u64();
  report.pending = from.u32();
  report.oldest.resize(from.count(4 * sizeof(std::uint32_t)));
  if (report.oldest.size() > RankReport::kMaxPending) from.fail("too many operations");
  for (RankReport::Pending& pending : report.oldest) pending = read_pending(from);
  from.finish();
  return report;
}

Bytes encode(const RankNote& note) {
  WireWriter to;
  to.u8(static_cast<std::uint8_t>(note.kind));
  to.i32(note.blames);
  to.u8(note.blamed_left ? 1 : 0);
  return to.take();
}

std::optional<RankNote> decode_rank_note(std::span<const std::byte> bytes) {
  if (bytes.size() != RankNote::kBytes) return std::nullopt;
  WireReader from(bytes, "rank note");
  RankNote note;
  note.kind = static_cast<RankNote::Kind>(from.u8());
  note.blames = from.i32();
  const auto left = from.u8();
  note.blamed_left = left == 1;
  const bool known = note.kind == RankNote::Kind::joined || note.kind == RankNote::Kind::ended ||
                     note.kind == RankNote::Kind::stops;
  if (!known || note.blames < -1 || left > 1) return std::nullopt;
  return note;
}

}  // namespace hvd
