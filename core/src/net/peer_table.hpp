// Holds the hosts and addresses of the ranks of a job. The functions have no side effects.
#pragma once

#include <string>
#include <vector>

#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/peer_network.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd::net {

/// Holds the record that one rank publishes about itself.
struct PeerRecord {
  HostIdentity host;
  std::string unix_address;
  std::string tcp_address;  ///< empty when the rank does not listen on TCP
};

/// Holds the answer that rank 0 publishes about all ranks.
struct PeerTable {
  std::vector<PeerRecord> ranks;
  Secret secret;  ///< new, for ranks of one host that have none; otherwise empty

  [[nodiscard]] bool on_one_host() const noexcept;
};

[[nodiscard]] Bytes encode(const PeerRecord& record);
/// Encodes the table, in which it names each distinct host once.
[[nodiscard]] Bytes encode(const PeerTable& table);
/// Throw Errc::protocol.
[[nodiscard]] PeerRecord decode_peer_record(std::span<const std::byte> bytes);
[[nodiscard]] PeerTable decode_peer_table(std::span<const std::byte> bytes);

}  // namespace hvd::net
