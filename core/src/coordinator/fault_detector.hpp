// Who failed, from what this rank saw and heard. Pure: time comes in as an argument.
//
// Rank 0 watches everyone and its verdict is everyone's; the others watch rank 0, and judge for
// themselves only when rank 0 itself is gone or says nothing.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

struct Verdict {
  Errc code = Errc::peer_lost;
  int rank = -1;  ///< culprit; -1: nobody in particular
  std::string cause;
};

class FaultDetector {
 public:
  struct Settings {
    Clock::duration tick_interval;  ///< how often `tick` is meant to be called
    Clock::duration peer_timeout;   ///< silence after which a watched peer counts as frozen
    Clock::duration settle;         ///< how long weak evidence waits for better
  };

  FaultDetector(const Settings& settings, Clock::time_point now);

  /// Starts the clock of a peer.
  void watch(int peer, Clock::time_point now);
  void unwatch(int peer);
  void heard(int peer, Clock::time_point now);

  /// The peer's control stream ended: it has crashed. Strong evidence.
  void lost(int peer, const std::string& cause, Clock::time_point now);
  /// Some rank called `abort`. Strong evidence.
  void aborted(int by, const std::string& reason, Clock::time_point now);
  /// A collective failed with `code`, blaming `peer` (-1: nobody). Weak: the peer may be a victim.
  void suspected(int peer, Errc code, const std::string& cause, Clock::time_point now);

  /// The verdict, once there is one. Time in which `tick` itself came late is not held against
  /// the peers.
  [[nodiscard]] std::optional<Verdict> tick(Clock::time_point now);

 private:
  enum class Strength { weak, strong };
  void weigh(Strength strength, Verdict verdict, Clock::time_point now);

  Settings settings_;
  Clock::time_point last_tick_;
  std::map<int, Clock::time_point> heard_;
  struct Evidence {
    Strength strength;
    Verdict verdict;
    Clock::time_point since;
  };
  std::optional<Evidence> best_;
};

}  // namespace hvd
