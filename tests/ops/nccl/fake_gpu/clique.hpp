// The ranks of one fake NCCL communicator, and their synchronisation.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fake_gpu/arithmetic.hpp"

namespace hvd::test::fake_gpu {

/// One collective, or one end of a message, with the arguments of one rank.
struct Call {
  enum class Kind : std::uint8_t {
    allreduce,
    broadcast,
    reduce,
    reduce_scatter,
    send,
    receive,
    allgather
  } kind = Kind::allreduce;
  const void* src = nullptr;
  void* dst = nullptr;
  std::size_t count = 0;  ///< of a reduce_scatter or an allgather: of one rank's part
  ncclDataType_t type = ncclFloat32;
  Reduction reduction;
  int root = 0;             ///< of a message: the peer
  bool registered = false;  ///< the memory that it reads or writes is registered

  [[nodiscard]] bool is_message() const noexcept {
    return kind == Kind::send || kind == Kind::receive;
  }
};

class Clique {
 public:
  explicit Clique(int size) : size_(size) {}

  [[nodiscard]] int size() const noexcept { return size_; }
  /// Returns false when a rank or a device joins twice, which NCCL refuses by default.
  bool join(int rank, int device);
  [[nodiscard]] bool complete() const;
  /// A rank has come to its first collective of this kind. Returns true once all have.
  [[nodiscard]] bool connect(int rank, Call::Kind kind);

  /// Called by stream threads. Waits for the same call of all other ranks; then all results are
  /// there. Returns false when this rank was aborted meanwhile, or the calls do not match.
  bool meet(int rank, const Call& call);
  /// Called by stream threads. Sends a message at once, as in a group of NCCL, or waits for one.
  /// Returns false as `meet` does.
  bool pass(int rank, const Call& call);
  void abort(int rank);
  /// Works like NCCL's finalize: returns true once every rank has called it or was aborted.
  bool leave(int rank);

 private:
  struct Meeting {
    std::map<int, Call> calls;
    int gone = 0;
    bool ran = false;
    bool fits = true;
  };
  void run(Meeting& meeting);
  static void deliver(const Meeting& meeting, const std::vector<std::byte>& result);

  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> devices_;  ///< by rank
  std::map<Call::Kind, std::set<int>> connected_;
  std::map<int, std::uint64_t> next_;
  std::map<std::uint64_t, Meeting> meetings_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> messages_;  ///< by ends
  std::set<int> aborted_;
  std::set<int> left_;
};

}  // namespace hvd::test::fake_gpu
