#include "transport/frames.hpp"

#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/elastic_messages.hpp>

#include "base/field_codec.hpp"

namespace hvd::launcher {

static_assert(static_cast<int>(BindTo::none) == 1, "hvd_spark/own_part.py has this number");

template <>
constexpr RendezvousReach kLast<RendezvousReach> = RendezvousReach::network;
template <>
constexpr Stream kLast<Stream> = Stream::err;
template <>
constexpr BindTo kLast<BindTo> = BindTo::numa;
template <>
constexpr MapBy kLast<MapBy> = MapBy::numa;

namespace {

void rank_of(auto& frame, auto& codec) {
  codec(frame.rank);
  codec.check(frame.rank >= 0, "negative rank");
}
void signal_of(auto& frame, auto& codec) {
  codec(frame.signal);
  codec.check(frame.signal >= 1 && frame.signal <= 64, "no such signal");
}
void generation_of(auto& frame, auto& codec) {
  codec(frame.generation);
  codec.check(frame.generation > 0, "generation 0");
}

}  // namespace

void fields(Is<Prepare::Rank> auto& rank, auto& codec) {
  rank_of(rank, codec);
  codec(rank.variables);
}
void fields(Is<BindingOptions> auto& binding, auto& codec) {
  codec(binding.to, binding.by, binding.cores);
  codec.check(binding.cores >= 0 && binding.cores <= kMostCoresPerRank, "no such binding");
}
void fields(Is<Prepare> auto& frame, auto& codec) {
  codec(frame.version, frame.job_id, frame.epoch, frame.rendezvous, frame.host_timeout,
        frame.interfaces, frame.directory, frame.program, frame.environment, frame.ranks,
        frame.workers, frame.secret, frame.binding);
  codec.check(frame.host_timeout.count() == 0 || frame.host_timeout >= kLeastHostTimeout,
              "host timeout out of range");
  codec.check(!frame.program.empty(), "no program");
  codec.check(frame.workers >= 0 && frame.workers <= kMostWorkers, "no such number of workers");
  codec.check(frame.workers == 0 || frame.ranks.empty(), "an elastic job with ranks");
}
void fields(Is<Launch> auto& frame, auto& codec) { codec(frame.variables); }
void fields(Is<Forward> auto& frame, auto& codec) { signal_of(frame, codec); }
void fields(Is<End> auto& frame, auto& codec) {
  signal_of(frame, codec);
  codec(frame.grace);
}
void fields(Is<Credit> auto& frame, auto& codec) {
  codec(frame.bytes);
  codec.check(frame.bytes <= kOutputWindow, "more credit than the window");
}
void fields(Is<Prepared> auto& frame, auto& codec) {
  codec(frame.hostname, frame.threads, frame.store, frame.master_host, frame.master_port,
        frame.unbound);
}
void fields(Is<Refused> auto& frame, auto& codec) {
  codec(frame.code, frame.message);
  codec.check(frame.code >= 1 && frame.code <= 255, "no such exit code");
}
void fields(Is<Started> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.pid, frame.cpus);
  codec.check(parse_cpu_list(frame.cpus).has_value(), "not a list of CPUs");
}
void fields(Is<Output> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.stream, frame.bytes);
  codec.check(frame.bytes.size() <= kMaxOutput, "too much output");
}
void fields(Is<Exited> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.status, frame.elapsed, frame.without_shutdown, frame.blames, frame.blamed_left);
}
void fields(Is<Join> auto& frame, auto& codec) {
  constexpr std::size_t kMaxText = 256;
  codec(frame.version, frame.node_rank, frame.nodes, frame.processes, frame.hostname);
  codec.check(frame.version.size() <= kMaxText && frame.hostname.size() <= kMaxText, "a long text");
  const auto is_count = [](std::int32_t value) { return value >= 1 && value <= kMostNodes; };
  codec.check(frame.node_rank >= -1 && frame.node_rank < kMostNodes && is_count(frame.nodes) &&
                  is_count(frame.processes),
              "node counts out of range");
}
void fields(Is<Finished> auto& frame, auto& codec) {
  codec(frame.code, frame.again, frame.report);
  codec.check(frame.code >= 0 && frame.code <= 255, "no such exit code");
}
void fields(Is<RankUsage> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.cpu, frame.memory, frame.gpu_memory, frame.gpu_load);
  codec.check(frame.gpu_load.value_or(0) <= 100, "a load above 100 percent");
}
void fields(Is<RankAnswer> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.bytes);
  codec.check(frame.bytes.size() <= kMaxRankAnswer, "too long an answer");
}
void fields(Is<StartWorker> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.workers);
  codec.check(frame.workers >= 1 && frame.workers <= kMostWorkers, "no such number of workers");
}
void fields(Is<KillWorker> auto& frame, auto& codec) { rank_of(frame, codec); }
void fields(Is<ElasticMessage> auto& frame, auto& codec) {
  rank_of(frame, codec);
  codec(frame.bytes);
  codec.check(frame.bytes.size() <= detail::kMaxElasticMessage, "too long a message");
}
void fields(Is<Serve> auto& frame, auto& codec) {
  generation_of(frame, codec);
  codec(frame.reach);
  codec.check(frame.reach != RendezvousReach::elsewhere, "a store that is elsewhere");
}
void fields(Is<Served> auto& frame, auto& codec) {
  generation_of(frame, codec);
  codec(frame.store, frame.master_host, frame.master_port);
}

namespace {

/// Reads the fields of a frame. The kind of a frame is its index in the variant.
template <std::size_t Kind = 0>
Frame read_kind(std::size_t kind, WireReader& from) {
  if constexpr (Kind == std::variant_size_v<Frame>) {
    from.fail("no such frame");
  } else {
    if (kind != Kind) return read_kind<Kind + 1>(kind, from);
    std::variant_alternative_t<Kind, Frame> frame{};
    FieldDecoder decoder(from);
    decoder(frame);
    return frame;
  }
}

}  // namespace

Bytes encode(const Frame& frame) {
  WireWriter body;
  body.u8(static_cast<std::uint8_t>(frame.index()));
  FieldEncoder encoder(body);
  std::visit(encoder, frame);
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
