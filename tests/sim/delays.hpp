// How long everything takes, and the phases in which it takes longer.
#pragma once

#include <algorithm>
#include <vector>

#include "event_queue.hpp"
#include "random.hpp"

namespace hvd::sim {

class Delays {
 public:
  struct Phase {
    Nanos begin = 0;
    Nanos end = 0;
    int rank = -1;  ///< -1: everybody
    int factor = 1;
  };

  Delays(Random& random, const EventQueue& events) : random_(random), events_(events) {}

  void slow(Phase phase) { phases_.push_back(phase); }
  /// Threads of a rank wait for each other; its tasks run late.
  void reorder(Nanos most) { local_most_ = most; }
  /// A message takes several streams from its sender to its receiver.
  void hops(int hops) { hops_ = hops; }

  /// From one thread of a rank to another.
  [[nodiscard]] Nanos local(int rank) {
    return std::min(random_.spread(kMicro, local_most_) * factor(rank, rank), 20 * kMilli);
  }
  [[nodiscard]] Nanos message(int from, int to) {
    return std::min(random_.spread(20 * kMicro, kMilli) * factor(from, to), 120 * kMilli / hops_);
  }
  /// Until a relay has seen to what else its loop has to do in this turn.
  [[nodiscard]] Nanos turn() { return random_.spread(kMicro, 200 * kMicro); }
  /// Until a full socket takes bytes again; 0: it is not full.
  [[nodiscard]] Nanos full() {
    return random_.chance(20) ? random_.spread(10 * kMicro, 5 * kMilli) : 0;
  }
  /// A collective's data.
  [[nodiscard]] Nanos transfer(int rank) {
    return std::min(random_.spread(10 * kMicro, 4 * kMilli) * factor(rank, rank), 100 * kMilli);
  }

 private:
  [[nodiscard]] int factor(int a, int b) const {
    for (const Phase& phase : phases_) {
      if (events_.now() < phase.begin || events_.now() >= phase.end) continue;
      if (phase.rank < 0 || phase.rank == a || phase.rank == b) return phase.factor;
    }
    return 1;
  }

  Random& random_;
  const EventQueue& events_;
  std::vector<Phase> phases_;
  Nanos local_most_ = 40 * kMicro;
  int hops_ = 1;
};

}  // namespace hvd::sim
