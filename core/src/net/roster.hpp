// How the ranks of a job learn from the store where the others run and listen.
#pragma once

#include <string>
#include <vector>

#include <hvd/core/peer_network.hpp>
#include <hvd/core/store.hpp>

namespace hvd::net {

/// Where one rank listens.
struct PeerAddresses {
  std::string unix_address;
  std::string tcp_address;
};

[[nodiscard]] Bytes encode(const HostIdentity& host);
[[nodiscard]] Bytes encode(const PeerAddresses& addresses);
/// Throw Errc::protocol.
[[nodiscard]] HostIdentity decode_host(std::span<const std::byte> bytes);
[[nodiscard]] PeerAddresses decode_addresses(std::span<const std::byte> bytes);

/// One rank's view of the meeting point; every rank makes the same calls. A process may meet
/// several times in one store: each rank counts its meetings there, so that none reads what an
/// earlier one left behind.
class Roster {
 public:
  Roster(Store& store, int rank, int size, Deadline deadline);

  /// Publishes this rank's value of `what` and returns everyone's, by rank.
  /// Throws Errc::timeout naming all the ranks that have not published theirs.
  [[nodiscard]] std::vector<Bytes> exchange(std::string_view what, const Bytes& own);
  /// Rank 0's value of `what` on every rank.
  [[nodiscard]] Bytes share(std::string_view what, const Bytes& own);

 private:
  [[nodiscard]] std::string key(std::string_view what, int rank) const;
  [[noreturn]] void name_missing(std::string_view what, int first) const;

  Store& store_;
  int rank_;
  int size_;
  Deadline start_;
  Deadline deadline_;
  std::uint64_t meeting_ = 0;
};

}  // namespace hvd::net
