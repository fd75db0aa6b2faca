// Collectives: the n-th of a process set on one rank meets the n-th on every other, whatever it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/job.hpp"
#include "delays.hpp"
#include "oracle.hpp"
#include "random.hpp"
#include "trace.hpp"

namespace hvd::sim {

/// How a rank's part ends. `culprit` is weak evidence, which may name a victim.
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

  /// The rank's next collective. `job` lives until it is finished or failed.
  void start(int rank, const Job& job);
  /// The rank takes part in nothing any more.
  void gone(int rank);
  /// The rank's collective failed on its own: the others hang.
  void dropped(int rank);
  [[nodiscard]] std::uint64_t collectives() const noexcept { return collectives_; }

 private:
  struct Collective {
    std::vector<int> members;
    std::vector<const Job*> jobs;  // by place
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
