#include "coordinator/fault_detector.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace hvd {

FaultDetector::FaultDetector(const Settings& settings, Clock::time_point now)
    : settings_(settings), last_tick_(now) {}

void FaultDetector::watch(int peer, Clock::time_point now) { heard_[peer] = now; }

void FaultDetector::heard(int peer, Clock::time_point now) {
  if (const auto at = heard_.find(peer); at != heard_.end()) at->second = now;
}

void FaultDetector::lost(int peer, const std::string& cause, Clock::time_point now) {
  weigh(Strength::strong, {Errc::peer_lost, peer, cause}, now);
}

void FaultDetector::aborted(int by, const std::string& reason, Clock::time_point now) {
  weigh(Strength::strong, {Errc::aborted, by, reason}, now);
}

void FaultDetector::suspected(int peer, Errc code, const std::string& cause,
                              Clock::time_point now) {
  weigh(Strength::weak, {code, peer, cause}, now);
}

void FaultDetector::weigh(Strength strength, Verdict verdict, Clock::time_point now) {
  // The first of the strongest stands: what comes later is likely its consequence.
  if (best_ && best_->strength >= strength) return;
  best_ = Evidence{strength, std::move(verdict), now};
}

std::optional<Verdict> FaultDetector::tick(Clock::time_point now) {
  const Clock::duration late = lateness(now);
  last_tick_ = now;
  if (late >= long_pause()) pause_ = Pause{now, late};
  for (auto& [peer, at] : heard_) {
    if (late > Clock::duration::zero()) at = std::min(at + late, now);
    const auto silence = now - at;
    if (silence < settings_.peer_timeout) continue;
    weigh(Strength::strong,
          {Errc::peer_lost, peer,
           fmt::format("silent for {:.1f} s", std::chrono::duration<double>(silence).count())},
          now);
  }
  if (!best_) return std::nullopt;
  if (best_->strength == Strength::weak && now - best_->since < settings_.settle) {
    return std::nullopt;
  }
  return best_->verdict;
}

std::optional<Clock::duration> FaultDetector::stood_still(Clock::time_point now) const {
  if (lateness(now) >= long_pause()) return lateness(now);
  if (pause_ && now - pause_->end < settings_.peer_timeout) return pause_->length;
  return std::nullopt;
}

}  // namespace hvd
