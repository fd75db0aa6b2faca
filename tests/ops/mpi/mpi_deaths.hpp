// Peers that die or stop at named points of operations over MPI.
#pragma once

namespace hvd::test {

enum class DeathPoint {
  arriving,  ///< before the call of MPI: the survivor waits for who never comes
  waiting,   ///< after it, at the first test whether it is done
  messages,  ///< of a sum by the ring over MPI's messages: at an exchange, within one, doubling
  carrying,  ///< of the ring's other operations over them
};

/// Ranks 2i and 2i+1 of the world are a pair with an operation of its own; the odd one gets
/// `signal` at the point, the even one says how that ended. One pair for each of MPI's six
/// operations, for each of the three points of a sum, or for each other operation of the ring.
void peers_end_at(DeathPoint point, int signal);

}  // namespace hvd::test
