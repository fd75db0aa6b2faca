// Decides who failed, from what this rank saw and heard. It gets time and evidence as arguments.
//
// A rank watches the peers that it has a control stream with. All ranks accept rank 0's verdict;
// they judge for themselves only when their stream to rank 0 is gone or silent.
//
// A peer that says nothing has stopped, or the network to its host is cut. The kernel of its host
// tells the two apart: it acknowledges bytes as long as it and the network work, also for a process
// that is stopped. A silent peer whose host answers is therefore frozen, and is given up after
// `peer_timeout`. Where the host is silent too the network may recover, so the peer is given up
// only after the longer `host_timeout`.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd::detail {

struct Verdict {
  Errc code = Errc::peer_lost;
  int rank = -1;  ///< the culprit; -1 when no single rank is to blame
  std::string cause;
};

/// Tells from the code and the cause of a verdict whether the culprit has left the job, by a crash,
/// an exit, `abort` or for lack of a resource. A silent culprit has not: it may be frozen or out of
/// reach.
[[nodiscard]] bool has_left(Errc code, std::string_view cause) noexcept;

class FaultDetector {
 public:
  struct Settings {
    Clock::duration tick_interval;  ///< how often `tick` is meant to be called
    Clock::duration peer_timeout;   ///< a peer is frozen after so long a silence on a live host
    Clock::duration host_timeout;  ///< a peer is lost after so much silence, whatever its host does
    Clock::duration settle;        ///< how long weak evidence waits for better, at rank 0
  };

  FaultDetector(const Settings& settings, Clock::time_point now);

  /// Starts to watch a peer.
  void watch(int peer, Clock::time_point now);
  /// Records that the peer itself sent something.
  void heard(int peer, Clock::time_point now);
  /// Records that the kernel of the peer's host last acknowledged bytes at `at`, whatever the peer
  /// itself does. The caller calls it at every tick interval, after `tick`; a time before that of
  /// an earlier call has no effect.
  void host_answered(int peer, Clock::time_point at);

  /// Records that the peer's control stream ended, because it has crashed, or that a rank that
  /// watches it says that it is gone. This is strong evidence.
  void lost(int peer, const std::string& cause, Clock::time_point now);
  /// Records that some rank called `abort`. This is strong evidence.
  void aborted(int by, const std::string& reason, Clock::time_point now);
  /// Records that a collective failed with `code`, and that its backend blames `peer` (-1: no
  /// rank). This is weak evidence, since the peer may be a victim of another rank's failure. If the
  /// peer is `below_relay` and seems to be gone, the evidence waits for `peer_timeout` longer: the
  /// relay reports a peer that has ended by itself, and a peer that has left because the relay is
  /// silent may have done so before anybody else gives the relay up.
  void suspected(int peer, Errc code, const std::string& cause, bool below_relay,
                 Clock::time_point now);

  /// Returns the verdict, once there is one. Time in which `tick` itself came late is not held
  /// against the peers, and weak evidence waits for as much longer, since a relay that has better
  /// evidence may be as late.
  [[nodiscard]] std::optional<Verdict> tick(Clock::time_point now);
  /// Tells whether there is evidence of a failure, so that a verdict will follow.
  [[nodiscard]] bool suspects() const noexcept { return best_.has_value(); }
  /// Returns how long `tick` was late in the last few seconds, if that was so long that other ranks
  /// may have given this rank up.
  [[nodiscard]] std::optional<Clock::duration> stood_still(Clock::time_point now) const;

 private:
  friend struct StateReader;  // tests/explore reads and copies the whole state
  enum class Strength { weak, strong };
  struct Peer {
    Clock::time_point heard;
    Clock::time_point answered;  // when its host last acknowledged or sent bytes
    Clock::time_point overdue;   // since when the peer could have been heard
  };
  struct Evidence {
    Strength strength;
    Verdict verdict;
    Clock::time_point since;
    Clock::duration wait{};  // how long it waits for better evidence
  };
  void watch_silence(int number, const Peer& peer, Clock::time_point now);
  void weigh(Evidence evidence);
  [[nodiscard]] Clock::duration lateness(Clock::time_point now) const {
    return now - last_tick_ - settings_.tick_interval;
  }
  /// Returns the longest time without an acknowledgement after which a host still counts as
  /// reachable. It is less than half of the timeout, so that the peer is heard in time after a
  /// shorter outage (see `host_answered`), but longer than the time between two acknowledgements: a
  /// tick, TCP's delay of up to 200 ms, and a tick until the acknowledgement is noticed.
  [[nodiscard]] Clock::duration longest_gap() const {
    constexpr std::chrono::milliseconds kDelayedAcknowledgement{200};
    return std::max<Clock::duration>(settings_.peer_timeout / 3,
                                     2 * settings_.tick_interval + kDelayedAcknowledgement);
  }
  /// Returns the length below which a pause of this rank makes no other rank give this one up. It
  /// is less than the timeout, because the others count from the last message that they got, which
  /// was sent before the pause began.
  [[nodiscard]] Clock::duration long_pause() const { return settings_.peer_timeout * 3 / 4; }

  Settings settings_;
  Clock::time_point last_tick_;
  std::map<int, Peer> peers_;
  struct Pause {
    Clock::time_point end;
    Clock::duration length;
  };
  std::optional<Pause> pause_;  // the last pause that was long
  std::optional<Evidence> best_;
};

}  // namespace hvd::detail
