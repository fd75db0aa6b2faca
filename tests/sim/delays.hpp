// Draws the duration of every step, and the phases in which everything is slower.
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
    int rank = -1;  ///< -1: all ranks
    int factor = 1;
  };

  Delays(Random& random, const EventQueue& events) : random_(random), events_(events) {}

  void slow(Phase phase) { phases_.push_back(phase); }
  /// Delays the tasks of a rank's threads by up to `most`.
  void reorder(Nanos most) { local_most_ = most; }
  /// Sets how many streams a message passes from its sender to its receiver.
  void hops(int hops) { hops_ = hops; }

  /// The delay between two threads of a rank.
  [[nodiscard]] Nanos local(int rank) {
    return std::min(random_.spread(kMicro, local_most_) * factor(rank, rank), 20 * kMilli);
  }
  [[nodiscard]] Nanos message(int from, int to) {
    return std::min(random_.spread(20 * kMicro, kMilli) * factor(from, to), 120 * kMilli / hops_);
  }
  /// The time until a relay has handled everything else in this turn of its loop.
  [[nodiscard]] Nanos turn() { return random_.spread(kMicro, 200 * kMicro); }
  /// The time until a full socket accepts bytes again; 0 when it is not full.
  [[nodiscard]] Nanos full() {
    return random_.chance(20) ? random_.spread(10 * kMicro, 5 * kMilli) : 0;
  }
  /// The time to move a collective's data.
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
