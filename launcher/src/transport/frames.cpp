#include "transport/frames.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/elastic_messages.hpp>

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

// ---- writing: one overload per frame, fields in the order of the struct

void write(WireWriter& to, const std::vector<std::string>& texts) {
  to.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) to.text(text);
}

void write(WireWriter& to, const Prepare& frame) {
  to.text(frame.version);
  to.text(frame.job_id);
  to.u32(frame.epoch);
  to.u8(static_cast<std::uint8_t>(frame.rendezvous));
  to.i64(frame.host_timeout.count());
  to.text(frame.interfaces);
  to.text(frame.directory);
  write(to, frame.program);
  write(to, frame.environment);
  to.u32(static_cast<std::uint32_t>(frame.ranks.size()));
  for (const Prepare::Rank& rank : frame.ranks) {
    to.i32(rank.rank);
    write(to, rank.variables);
  }
  to.i32(frame.workers);
  to.raw(frame.secret.bytes());
  to.u8(static_cast<std::uint8_t>(frame.binding.to));
  to.u8(static_cast<std::uint8_t>(frame.binding.by));
  to.i32(frame.binding.cores);
}
void write(WireWriter& to, const Launch& frame) { write(to, frame.variables); }
void write(WireWriter& to, const Forward& frame) { to.i32(frame.signal); }
void write(WireWriter& to, const End& frame) {
  to.i32(frame.signal);
  to.i64(frame.grace.count());
}
void write(WireWriter& to, const Credit& frame) { to.u32(frame.bytes); }
void write(WireWriter& to, const Prepared& frame) {
  to.text(frame.hostname);
  to.i32(frame.threads);
  to.text(frame.store);
  to.text(frame.master_host);
  to.u16(frame.master_port);
  to.text(frame.unbound);
}
void write(WireWriter& to, const Refused& frame) {
  to.i32(frame.code);
  to.text(frame.message);
}
void write(WireWriter& to, const Started& frame) {
  to.i32(frame.rank);
  to.i32(frame.pid);
  to.text(frame.cpus);
}
void write(WireWriter& to, const Output& frame) {
  to.i32(frame.rank);
  to.u8(static_cast<std::uint8_t>(frame.stream));
  to.blob(frame.bytes);
}
void write(WireWriter& to, const Exited& frame) {
  to.i32(frame.rank);
  to.i32(frame.status);
  to.i64(frame.elapsed.count());
  to.u8(frame.without_shutdown ? 1 : 0);
  to.i32(frame.blames);
  to.u8(frame.blamed_left ? 1 : 0);
}
void write(WireWriter&, const Gone&) {}
void write(WireWriter&, const Done&) {}
void write(WireWriter&, const Beat&) {}
void write(WireWriter&, const Suspend&) {}
void write(WireWriter&, const StatusRequest&) {}
void write(WireWriter& to, const RankUsage& frame) {
  to.i32(frame.rank);
  to.i64(frame.cpu.count());
  to.u64(frame.memory);
  to.u8(frame.gpu_memory ? 1 : 0);
  if (frame.gpu_memory) to.u64(*frame.gpu_memory);
  to.u8(frame.gpu_load ? 1 : 0);
  if (frame.gpu_load) to.u8(*frame.gpu_load);
}
void write(WireWriter& to, const RankAnswer& frame) {
  to.i32(frame.rank);
  to.blob(frame.bytes);
}
void write(WireWriter& to, const Join& frame) {
  to.text(frame.version);
  to.i32(frame.node_rank);
  to.i32(frame.nodes);
  to.i32(frame.processes);
  to.text(frame.hostname);
}
void write(WireWriter& to, const Finished& frame) {
  to.i32(frame.code);
  to.u8(frame.again ? 1 : 0);
  to.text(frame.report);
}
void write(WireWriter& to, const StartWorker& frame) {
  to.i32(frame.rank);
  to.i32(frame.workers);
}
void write(WireWriter& to, const KillWorker& frame) { to.i32(frame.rank); }
void write(WireWriter& to, const ElasticMessage& frame) {
  to.i32(frame.rank);
  to.blob(frame.bytes);
}
void write(WireWriter& to, const Serve& frame) {
  to.u32(frame.generation);
  to.u8(static_cast<std::uint8_t>(frame.reach));
}
void write(WireWriter& to, const Served& frame) {
  to.u32(frame.generation);
  to.text(frame.store);
  to.text(frame.master_host);
  to.u16(frame.master_port);
}

// ---- reading: the same fields in the same order

std::vector<std::string> read_texts(WireReader& from) {
  std::vector<std::string> texts(from.count(sizeof(std::uint32_t)));
  for (std::string& text : texts) text = from.text(kMaxFrame);
  return texts;
}

milliseconds read_duration(WireReader& from) {
  constexpr std::int64_t kLongest = 1'000'000'000'000;
  const std::int64_t count = from.i64();
  if (count < 0 || count > kLongest) from.fail("duration out of range");
  return milliseconds{count};
}

std::int32_t read_signal(WireReader& from) {
  const std::int32_t signal = from.i32();
  if (signal < 1 || signal > 64) from.fail("no such signal");
  return signal;
}

bool read_flag(WireReader& from) {
  const auto flag = from.u8();
  if (flag > 1) from.fail("a flag is neither 0 nor 1");
  return flag == 1;
}

RendezvousReach read_rendezvous(WireReader& from) {
  const auto rendezvous = from.u8();
  if (rendezvous > static_cast<std::uint8_t>(RendezvousReach::network))
    from.fail("no such rendezvous");
  return static_cast<RendezvousReach>(rendezvous);
}

static_assert(static_cast<int>(BindTo::none) == 1, "hvd_spark/own_part.py has this number");

BindingOptions read_binding(WireReader& from) {
  const auto to = from.u8();
  const auto by = from.u8();
  const auto cores = from.i32();
  if (to > static_cast<std::uint8_t>(BindTo::numa) || by > static_cast<std::uint8_t>(MapBy::numa) ||
      cores < 0 || cores > kMostCoresPerRank) {
    from.fail("no such binding");
  }
  return {.to = static_cast<BindTo>(to), .by = static_cast<MapBy>(by), .cores = cores};
}

std::uint32_t read_generation(WireReader& from) {
  const std::uint32_t generation = from.u32();
  if (generation == 0) from.fail("generation 0");
  return generation;
}

std::int32_t read_rank(WireReader& from) {
  const std::int32_t rank = from.i32();
  if (rank < 0) from.fail("negative rank");
  return rank;
}

template <typename T>
T read(WireReader& from);

template <>
Prepare read<Prepare>(WireReader& from) {
  Prepare frame;
  frame.version = from.text(kMaxFrame);
  frame.job_id = from.text(kMaxFrame);
  frame.epoch = from.u32();
  frame.rendezvous = read_rendezvous(from);
  frame.host_timeout = read_duration(from);
  if (frame.host_timeout.count() > 0 && frame.host_timeout < kLeastHostTimeout) {
    from.fail("host timeout out of range");
  }
  frame.interfaces = from.text(kMaxFrame);
  frame.directory = from.text(kMaxFrame);
  frame.program = read_texts(from);
  if (frame.program.empty()) from.fail("no program");
  frame.environment = read_texts(from);
  frame.ranks.resize(from.count(2 * sizeof(std::uint32_t)));
  for (Prepare::Rank& rank : frame.ranks) {
    rank.rank = read_rank(from);
    rank.variables = read_texts(from);
  }
  frame.workers = from.i32();
  if (frame.workers < 0 || frame.workers > kMostWorkers) from.fail("no such number of workers");
  if (frame.workers > 0 && !frame.ranks.empty()) from.fail("an elastic job with ranks");
  frame.secret = Secret(from.raw(Secret::kSize).first<Secret::kSize>());
  frame.binding = read_binding(from);
  return frame;
}
template <>
Launch read<Launch>(WireReader& from) {
  return {.variables = read_texts(from)};
}
template <>
Forward read<Forward>(WireReader& from) {
  return {.signal = read_signal(from)};
}
template <>
End read<End>(WireReader& from) {
  const auto signal = read_signal(from);
  return {.signal = signal, .grace = read_duration(from)};
}
template <>
Credit read<Credit>(WireReader& from) {
  const Credit frame{.bytes = from.u32()};
  if (frame.bytes > kOutputWindow) from.fail("more credit than the window");
  return frame;
}
template <>
Prepared read<Prepared>(WireReader& from) {
  Prepared frame;
  frame.hostname = from.text(kMaxFrame);
  frame.threads = from.i32();
  frame.store = from.text(kMaxFrame);
  frame.master_host = from.text(kMaxFrame);
  frame.master_port = from.u16();
  frame.unbound = from.text(kMaxFrame);
  return frame;
}
template <>
Refused read<Refused>(WireReader& from) {
  const auto code = from.i32();
  if (code < 1 || code > 255) from.fail("no such exit code");
  return {.code = code, .message = from.text(kMaxFrame)};
}
template <>
Started read<Started>(WireReader& from) {
  Started frame;
  frame.rank = read_rank(from);
  frame.pid = from.i32();
  frame.cpus = from.text(kMaxFrame);
  if (!parse_cpu_list(frame.cpus)) from.fail("not a list of CPUs");
  return frame;
}
template <>
Output read<Output>(WireReader& from) {
  Output frame;
  frame.rank = read_rank(from);
  const auto stream = from.u8();
  if (stream > static_cast<std::uint8_t>(Stream::err)) from.fail("no such stream");
  frame.stream = static_cast<Stream>(stream);
  const auto bytes = from.blob(kMaxOutput);
  frame.bytes.assign(bytes.begin(), bytes.end());
  return frame;
}
template <>
Exited read<Exited>(WireReader& from) {
  Exited frame;
  frame.rank = read_rank(from);
  frame.status = from.i32();
  frame.elapsed = read_duration(from);
  frame.without_shutdown = read_flag(from);
  frame.blames = from.i32();
  frame.blamed_left = read_flag(from);
  return frame;
}
template <>
Gone read<Gone>(WireReader&) {
  return {};
}
template <>
Done read<Done>(WireReader&) {
  return {};
}
template <>
Beat read<Beat>(WireReader&) {
  return {};
}
template <>
Suspend read<Suspend>(WireReader&) {
  return {};
}
template <>
Join read<Join>(WireReader& from) {
  constexpr std::size_t kMaxText = 256;
  Join frame;
  frame.version = from.text(kMaxText);
  frame.node_rank = from.i32();
  frame.nodes = from.i32();
  frame.processes = from.i32();
  frame.hostname = from.text(kMaxText);
  const auto in_range = [](std::int32_t value, std::int32_t least, std::int32_t most) {
    return value >= least && value <= most;
  };
  if (!in_range(frame.node_rank, -1, kMostNodes - 1) || !in_range(frame.nodes, 1, kMostNodes) ||
      !in_range(frame.processes, 1, kMostNodes)) {
    from.fail("node counts out of range");
  }
  return frame;
}
template <>
Finished read<Finished>(WireReader& from) {
  Finished frame;
  frame.code = from.i32();
  if (frame.code < 0 || frame.code > 255) from.fail("no such exit code");
  frame.again = read_flag(from);
  frame.report = from.text(kMaxFrame);
  return frame;
}

template <>
StatusRequest read<StatusRequest>(WireReader&) {
  return {};
}
template <>
RankUsage read<RankUsage>(WireReader& from) {
  RankUsage frame;
  frame.rank = read_rank(from);
  frame.cpu = read_duration(from);
  frame.memory = from.u64();
  if (read_flag(from)) frame.gpu_memory = from.u64();
  if (read_flag(from)) {
    frame.gpu_load = from.u8();
    if (*frame.gpu_load > 100) from.fail("a load above 100 percent");
  }
  return frame;
}
template <>
RankAnswer read<RankAnswer>(WireReader& from) {
  RankAnswer frame;
  frame.rank = read_rank(from);
  const auto bytes = from.blob(kMaxRankAnswer);
  frame.bytes.assign(bytes.begin(), bytes.end());
  return frame;
}
template <>
StartWorker read<StartWorker>(WireReader& from) {
  const StartWorker frame{.rank = read_rank(from), .workers = from.i32()};
  if (frame.workers < 1 || frame.workers > kMostWorkers) from.fail("no such number of workers");
  return frame;
}
template <>
KillWorker read<KillWorker>(WireReader& from) {
  return {.rank = read_rank(from)};
}
template <>
ElasticMessage read<ElasticMessage>(WireReader& from) {
  ElasticMessage frame;
  frame.rank = read_rank(from);
  const auto bytes = from.blob(detail::kMaxElasticMessage);
  frame.bytes.assign(bytes.begin(), bytes.end());
  return frame;
}
template <>
Serve read<Serve>(WireReader& from) {
  const auto generation = read_generation(from);
  const Serve frame{.generation = generation, .reach = read_rendezvous(from)};
  if (frame.reach == RendezvousReach::elsewhere) from.fail("a store that is elsewhere");
  return frame;
}
template <>
Served read<Served>(WireReader& from) {
  Served frame;
  frame.generation = read_generation(from);
  frame.store = from.text(kMaxFrame);
  frame.master_host = from.text(kMaxFrame);
  frame.master_port = from.u16();
  return frame;
}

/// Reads the fields of a frame. The kind of a frame is its index in the variant.
template <std::size_t Kind = 0>
Frame read_kind(std::size_t kind, WireReader& from) {
  if constexpr (Kind == std::variant_size_v<Frame>) {
    from.fail("no such frame");
  } else {
    if (kind == Kind) return read<std::variant_alternative_t<Kind, Frame>>(from);
    return read_kind<Kind + 1>(kind, from);
  }
}

}  // namespace

Bytes encode(const Frame& frame) {
  WireWriter body;
  body.u8(static_cast<std::uint8_t>(frame.index()));
  std::visit([&](const auto& fields) { write(body, fields); }, frame);
  const Bytes bytes = body.take();
  if (bytes.size() > kMaxFrame) {
    throw Error(Errc::invalid_argument,
                fmt::format("program, arguments and environment take {} bytes, more than {}",
                            bytes.size(), kMaxFrame));
  }
  WireWriter framed;
  framed.blob(bytes);
  return framed.take();
}

Frame decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "launcher frame");
  const auto kind = reader.u8();
  Frame frame = read_kind(kind, reader);
  reader.finish();
  return frame;
}

}  // namespace hvd::launcher
