#include "net/roster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>

namespace hvd::net {
namespace {

constexpr std::size_t kMaxText = 512;
constexpr std::chrono::milliseconds kLastLook{500};

}  // namespace

Bytes encode(const HostIdentity& host) {
  WireWriter writer;
  writer.text(host.hostname);
  writer.text(host.boot_id);
  writer.u64(host.network_namespace);
  return writer.take();
}

HostIdentity decode_host(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "host identity");
  HostIdentity host;
  host.hostname = reader.text(kMaxText);
  host.boot_id = reader.text(kMaxText);
  host.network_namespace = reader.u64();
  reader.finish();
  return host;
}

Bytes encode(const PeerAddresses& addresses) {
  WireWriter writer;
  writer.text(addresses.unix_address);
  writer.text(addresses.tcp_address);
  return writer.take();
}

PeerAddresses decode_addresses(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "peer addresses");
  PeerAddresses addresses;
  addresses.unix_address = reader.text(kMaxText);
  addresses.tcp_address = reader.text(kMaxText);
  reader.finish();
  return addresses;
}

Roster::Roster(Store& store, int rank, int size, Deadline deadline)
    : store_(store), rank_(rank), size_(size), start_(Clock::now()), deadline_(deadline) {
  const std::string counter = fmt::format("meetings/{}", rank);
  if (const std::optional<Bytes> before = store_.get(counter, deadline_)) {
    meeting_ = WireReader(*before, "meeting counter").u64();
  }
  WireWriter writer;
  writer.u64(++meeting_);
  store_.set(counter, writer.take(), deadline_);
}

std::vector<Bytes> Roster::exchange(std::string_view what, const Bytes& own) {
  store_.set(key(what, rank_), own, deadline_);
  std::vector<Bytes> values;
  for (int rank = 0; rank < size_; ++rank) {
    try {
      values.push_back(rank == rank_ ? own : store_.wait(key(what, rank), deadline_));
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
      name_missing(what, rank);
    }
  }
  return values;
}

Bytes Roster::share(std::string_view what, const Bytes& own) {
  if (rank_ == 0) {
    store_.set(key(what, 0), own, deadline_);
    return own;
  }
  try {
    return store_.wait(key(what, 0), deadline_);
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    name_missing(what, 0);
  }
}

std::string Roster::key(std::string_view what, int rank) const {
  return fmt::format("{}/{}/{}", meeting_, what, rank);
}

void Roster::name_missing(std::string_view what, int first) const {
  std::vector<int> missing{first};
  const Deadline last = Clock::now() + kLastLook;
  try {
    for (int rank = first + 1; rank < size_; ++rank) {
      if (rank != rank_ && !store_.get(key(what, rank), last)) missing.push_back(rank);
    }
  } catch (const Error&) {
    // A store that is too slow to ask: the first one is known.
  }
  Fault fault;
  fault.rank = missing.size() == 1 ? first : -1;
  fault.cause = missing.size() == 1
                    ? "it did not come"
                    : fmt::format("ranks {} did not come", fmt::join(missing, ", "));
  fault.phase = "init";
  fault.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  throw Error(Errc::timeout, std::move(fault));
}

}  // namespace hvd::net
