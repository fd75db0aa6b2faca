#include "net/peer_table.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <hvd/core/internal/host_identity.hpp>

namespace hvd::net {
namespace {

constexpr std::size_t kMaxText = 512;
constexpr std::size_t kLeastHost = 2 * sizeof(std::uint32_t) + sizeof(std::uint64_t);
constexpr std::size_t kLeastRank = 3 * sizeof(std::uint32_t);

/// Numbers hosts in the order of their first rank.
class HostNumbers {
 public:
  /// Returns the host's number and whether it is new.
  std::pair<std::uint32_t, bool> add(const HostIdentity& host) {
    const auto [found, fresh] =
        numbers_.try_emplace(std::tuple(host.hostname, host.boot_id, host.network_namespace),
                             static_cast<std::uint32_t>(numbers_.size()));
    return {found->second, fresh};
  }

 private:
  std::map<std::tuple<std::string, std::string, std::uint64_t>, std::uint32_t> numbers_;
};

void write(WireWriter& out, const HostIdentity& host) {
  out.text(host.hostname);
  out.text(host.boot_id);
  out.u64(host.network_namespace);
}

HostIdentity read_host(WireReader& in) {
  HostIdentity host;
  host.hostname = in.text(kMaxText);
  host.boot_id = in.text(kMaxText);
  host.network_namespace = in.u64();
  return host;
}

void write_addresses(WireWriter& out, const PeerRecord& record) {
  out.text(record.unix_address);
  out.text(record.tcp_address);
}

void read_addresses(WireReader& in, PeerRecord& record) {
  record.unix_address = in.text(kMaxText);
  record.tcp_address = in.text(kMaxText);
}

}  // namespace

bool PeerTable::on_one_host() const noexcept {
  return std::all_of(ranks.begin(), ranks.end(), [this](const PeerRecord& record) {
    return record.host.same_host(ranks.front().host);
  });
}

Bytes encode(const PeerRecord& record) {
  WireWriter out;
  write(out, record.host);
  write_addresses(out, record);
  return out.take();
}

PeerRecord decode_peer_record(std::span<const std::byte> bytes) {
  WireReader in(bytes, "peer record");
  PeerRecord record;
  record.host = read_host(in);
  read_addresses(in, record);
  in.finish();
  return record;
}

Bytes encode(const PeerTable& table) {
  HostNumbers numbers;
  std::vector<const HostIdentity*> hosts;
  std::vector<std::uint32_t> host_of;
  for (const PeerRecord& record : table.ranks) {
    const auto [number, fresh] = numbers.add(record.host);
    if (fresh) hosts.push_back(&record.host);
    host_of.push_back(number);
  }
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(hosts.size()));
  for (const HostIdentity* const host : hosts) write(out, *host);
  out.u32(static_cast<std::uint32_t>(table.ranks.size()));
  for (std::size_t rank = 0; rank < table.ranks.size(); ++rank) {
    out.u32(host_of[rank]);
    write_addresses(out, table.ranks[rank]);
  }
  out.raw(table.secret.bytes());
  return out.take();
}

PeerTable decode_peer_table(std::span<const std::byte> bytes) {
  WireReader in(bytes, "peer table");
  std::vector<HostIdentity> hosts(in.count(kLeastHost));
  HostNumbers numbers;
  for (HostIdentity& host : hosts) {
    host = read_host(in);
    if (!numbers.add(host).second) in.fail("a host is named twice");
  }
  PeerTable table;
  table.ranks.resize(in.count(kLeastRank));
  std::size_t used = 0;
  for (PeerRecord& record : table.ranks) {
    const std::uint32_t host = in.u32();
    if (host > used || host >= hosts.size()) in.fail("a host's number is out of order");
    if (host == used) ++used;
    record.host = hosts[host];
    read_addresses(in, record);
  }
  if (used != hosts.size()) in.fail("a host has no rank");
  table.secret = Secret(in.raw(Secret::kSize).first<Secret::kSize>());
  in.finish();
  return table;
}

}  // namespace hvd::net
