// Models collectives: the n-th collective of a process set on one rank runs together with the n-th
// on every other rank, whatever its operation is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "delays.hpp"
#include "engine/local_batch.hpp"
#include "oracle.hpp"
#include "random.hpp"
#include "trace.hpp"

namespace hvd::sim {

/// The error of a rank's part. `culprit` is weak evidence and may name a victim.
struct Blame {
  Errc code = Errc::peer_lost;
  int culprit = -1;
};

class DataPlane {
 public:
  struct Receiver {
    std::function<void(int rank)> finished;
    std::function<void(int rank, Blame)> failed;
  };

  DataPlane(int ranks, EventQueue& events, Delays& delays, Random& random, Oracle& oracle,
            Trace& trace, Receiver receiver);

  /// Starts the rank's next collective. `batch` must live until it has finished or failed.
  void start(int rank, const detail::LocalBatch& batch);
  /// The rank takes part in no further collective.
  void gone(int rank);
  /// The rank's collective failed on this rank only, so the other ranks hang.
  void dropped(int rank);
  [[nodiscard]] std::uint64_t collectives() const noexcept { return collectives_; }

 private:
  struct Collective {
    std::vector<int> members;
    std::vector<const detail::LocalBatch*> batches;  // by position in the process set
    std::size_t here = 0;
  };

  void fail(int rank, const Collective& collective, int gone);

  EventQueue& events_;
  Delays& delays_;
  Random& random_;
  Oracle& oracle_;
  Trace& trace_;
  Receiver receiver_;
  std::vector<std::map<std::int32_t, std::uint64_t>> next_;  // by rank, set
  std::map<std::pair<std::int32_t, std::uint64_t>, Collective> open_;
  std::set<int> gone_;
  std::uint64_t collectives_ = 0;
};

}  // namespace hvd::sim
