#include "policy/fault_detector.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace hvd::detail {

namespace {

constexpr std::string_view kSilent = "silent for";  // the cause of a verdict of silence begins so

}  // namespace

bool has_left(Errc code, std::string_view cause) noexcept {
  return code == Errc::aborted || code == Errc::resource ||
         (code == Errc::peer_lost && !cause.starts_with(kSilent));
}

FaultDetector::FaultDetector(const Settings& settings, Clock::time_point now)
    : settings_(settings), last_tick_(now) {}

void FaultDetector::watch(int peer, Clock::time_point now) { peers_[peer] = {now, now, now}; }

void FaultDetector::heard(int peer, Clock::time_point now) {
  if (const auto found = peers_.find(peer); found != peers_.end()) found->second = {now, now, now};
}

void FaultDetector::host_answered(int peer, Clock::time_point at) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || at <= found->second.answered) return;
  Peer& of = found->second;
  // After the first few retransmissions TCP doubles its wait before each further one. After an
  // outage the first acknowledgement may therefore come earlier than the peer's own bytes, by up to
  // the length of the outage.
  if (const auto outage = at - of.answered; outage > longest_gap()) of.overdue = at + outage;
  of.answered = at;
}

void FaultDetector::lost(int peer, const std::string& cause, Clock::time_point now) {
  weigh({Strength::strong, {Errc::peer_lost, peer, cause}, now});
}

void FaultDetector::aborted(int by, const std::string& reason, Clock::time_point now) {
  weigh({Strength::strong, {Errc::aborted, by, reason}, now});
}

void FaultDetector::suspected(int peer, Errc code, const std::string& cause, bool below_relay,
                              Clock::time_point now) {
  auto wait = settings_.settle;
  if (below_relay && code == Errc::peer_lost) wait += settings_.peer_timeout;
  weigh({Strength::weak, {code, peer, cause}, now, wait});
}

void FaultDetector::weigh(Evidence evidence) {
  // The first piece of the strongest evidence counts, since later ones are likely its consequence.
  if (best_ && best_->strength >= evidence.strength) return;
  best_ = std::move(evidence);
}

std::optional<Verdict> FaultDetector::tick(Clock::time_point now) {
  const Clock::duration late = lateness(now);
  last_tick_ = now;
  if (late >= long_pause()) pause_ = Pause{now, late};
  const auto excuse = [&](Clock::time_point& since) {
    if (late > Clock::duration::zero()) since = std::min(since + late, now);
  };
  for (auto& [number, peer] : peers_) {
    excuse(peer.heard);
    excuse(peer.answered);
    excuse(peer.overdue);
    watch_silence(number, peer, now);
  }
  if (!best_) return std::nullopt;
  excuse(best_->since);
  if (now - best_->since < best_->wait) return std::nullopt;
  return best_->verdict;
}

void FaultDetector::watch_silence(int number, const Peer& peer, Clock::time_point now) {
  const auto silence = now - peer.heard;
  const bool host_answers = now - peer.answered <= longest_gap();
  const bool frozen = host_answers && now - peer.overdue >= settings_.peer_timeout;
  if (!frozen && silence < settings_.host_timeout) return;
  const auto* const which = frozen ? "though its host answers (HVD_PEER_TIMEOUT_MS)"
                                   : "longer than HVD_HOST_TIMEOUT_S allows";
  weigh({Strength::strong,
         {Errc::peer_lost, number,
          fmt::format("{} {:.1f} s, {}", kSilent, std::chrono::duration<double>(silence).count(),
                      which)},
         now});
}

std::optional<Clock::duration> FaultDetector::stood_still(Clock::time_point now) const {
  if (lateness(now) >= long_pause()) return lateness(now);
  if (pause_ && now - pause_->end < settings_.peer_timeout) return pause_->length;
  return std::nullopt;
}

}  // namespace hvd::detail
