// Peers that die or stop at named points of operations over MPI.
#pragma once

namespace hvd::test {

enum class DeathPoint {
  arriving,  ///< before the MPI call; the survivor waits for a rank that never comes
  waiting,   ///< after the call, at the first test for completion
  messages,  ///< in a sum by the ring over MPI's messages
  carrying,  ///< in the ring's other operations
};

/// Ranks 2i and 2i+1 of the world are a pair with an operation of its own. The odd one gets
/// `signal` at the point; the even one prints the error that it gets. There is a pair for each of
/// MPI's six operations, for each of the three points of a sum, or for each other operation of the
/// ring.
void peers_end_at(DeathPoint point, int signal);

}  // namespace hvd::test
