// Declares the point-to-point transport of bulk bytes between the ranks of a group.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

class Session;

/// Consumes received bytes, on the caller's thread: `offset` counts from the start of the exchange,
/// and pieces may arrive in any order. The span is the transport's memory and valid during the call
/// only.
using ByteSink = std::function<void(std::size_t offset, std::span<const std::byte> bytes)>;

struct Outgoing {
  int peer = -1;                     ///< -1 sends nothing
  std::span<const std::byte> bytes;  ///< may be empty; read until `exchange` returns
};

struct Incoming {
  int peer = -1;                ///< -1 receives nothing
  std::size_t size = 0;         ///< bytes
  std::byte* into = nullptr;    ///< the destination, or null
  ByteSink sink;                ///< without a destination, consumes the bytes in pieces
  std::size_t granularity = 1;  ///< sizes and offsets of the pieces are multiples of it
};

/// Sends bytes point-to-point, in order per pair and full duplex. Both sides agree on sizes
/// beforehand. One thread at a time may call it, but for `abort`. `exchange` blocks at most until
/// `deadline` and throws `Error`: peer_lost or timeout with the peer's rank in the fault, aborted.
/// After an error the transport is unusable. Sending to oneself is not supported.
class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Sends and receives at the same time, and returns when both have ended.
  virtual void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) = 0;
  /// Makes a running `exchange` and every later one throw Errc::aborted soon. Any thread may call
  /// it. The transport must live until the call returns.
  virtual void abort() noexcept = 0;
};

/// Makes `size` transports that are connected inside this process, one per rank.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_in_process_transports(int size);

/// Uses TCP streams between pairs of ranks, which are opened when they are first used: one for
/// small messages, and `streams`, the same number on every rank, for messages of a MiB and more.
/// `session` outlives it.
[[nodiscard]] std::unique_ptr<Transport> make_tcp_transport(Session& session, int streams = 1);

/// Uses MPI's messages on a duplicate of MPI_COMM_WORLD. Initialises MPI when the program has not,
/// so the user's thread must call it. Collective. Throws Errc::unsupported, saying why, when MPI
/// cannot be used from here or its ranks are not the session's. Returns null when this build has no
/// MPI.
[[nodiscard]] std::unique_ptr<Transport> make_mpi_transport(Session& session);

}  // namespace hvd
