// Models the contract of `ReadyFence`: either all members arrive at a sequence number, or the wait
// for it is cancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "data_plane.hpp"
#include "engine/local_batch.hpp"

namespace hvd::sim {

class FenceModel {
 public:
  struct Receiver {
    std::function<void(int rank, bool met)> over;
    std::function<void(int rank, Blame)> failed;
  };

  FenceModel(int ranks, EventQueue& events, Delays& delays, Random& random, Receiver receiver);

  /// The rank arrives at the fence of `batch`, which must live until the fence has ended.
  void come(int rank, const detail::LocalBatch& batch);
  /// `reached` has the last sequence number of each rank. Waits at sequence numbers that some
  /// member never reaches are cancelled.
  void settle(int rank, const std::vector<std::uint64_t>& reached);
  void gone(int rank);
  /// The rank has failed on its own and sends no message about it.
  void dropped(int rank);

 private:
  struct OpenFence {
    std::vector<int> members;
    std::set<int> here;
    std::uint64_t digest = 0;
  };
  struct OfRank {
    std::uint64_t sequence = 0;  // the last sequence number that the rank came to
    std::vector<std::vector<std::uint64_t>> settlements;
    bool waits = false;
  };

  [[nodiscard]] bool cancelled(int rank, const detail::LocalBatch& batch) const;
  [[nodiscard]] static bool cancelled(const std::vector<std::uint64_t>& reached,
                                      std::uint64_t sequence, const std::vector<int>& members);
  void end(int rank, std::uint64_t sequence, bool met, Nanos delay);
  void fail(int rank, std::uint64_t sequence, int gone);
  [[nodiscard]] OfRank& of(int rank) { return of_[static_cast<std::size_t>(rank)]; }

  EventQueue& events_;
  Delays& delays_;
  Random& random_;
  Receiver receiver_;
  std::vector<OfRank> of_;
  std::map<std::uint64_t, OpenFence> open_;
  std::map<std::uint64_t, std::vector<std::string>> digests_;  // the operations of each digest
  std::set<int> gone_;
};

}  // namespace hvd::sim
