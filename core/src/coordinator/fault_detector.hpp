// Who failed, from what this rank saw and heard. Pure: time comes in as an argument.
//
// A rank watches those it has a control stream with. Rank 0's verdict is everyone's; the others
// judge for themselves only when the way to rank 0 is gone or says nothing.
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
  void heard(int peer, Clock::time_point now);

  /// The peer's control stream ended: it has crashed; or somebody who watches it says that it is
  /// gone. Strong evidence.
  void lost(int peer, const std::string& cause, Clock::time_point now);
  /// Some rank called `abort`. Strong evidence.
  void aborted(int by, const std::string& reason, Clock::time_point now);
  /// A collective failed with `code`, blaming `peer` (-1: nobody). Weak: the peer may be a victim.
  void suspected(int peer, Errc code, const std::string& cause, Clock::time_point now);

  /// The verdict, once there is one. Time in which `tick` itself came late is not held against
  /// the peers.
  [[nodiscard]] std::optional<Verdict> tick(Clock::time_point now);
  /// Whether there is evidence against somebody: a verdict is on its way.
  [[nodiscard]] bool suspects() const noexcept { return best_.has_value(); }
  /// How long `tick` was late, lately, if it was so long that others may have given this rank up.
  [[nodiscard]] std::optional<Clock::duration> stood_still(Clock::time_point now) const;

 private:
  enum class Strength { weak, strong };
  void weigh(Strength strength, Verdict verdict, Clock::time_point now);
  [[nodiscard]] Clock::duration lateness(Clock::time_point now) const {
    return now - last_tick_ - settings_.tick_interval;
  }
  /// Less than the timeout: the others count from what they heard last, and that takes time.
  [[nodiscard]] Clock::duration long_pause() const { return settings_.peer_timeout * 3 / 4; }

  Settings settings_;
  Clock::time_point last_tick_;
  std::map<int, Clock::time_point> heard_;
  struct Pause {
    Clock::time_point end;
    Clock::duration length;
  };
  std::optional<Pause> pause_;  // the last long one
  struct Evidence {
    Strength strength;
    Verdict verdict;
    Clock::time_point since;
  };
  std::optional<Evidence> best_;
};

}  // namespace hvd
