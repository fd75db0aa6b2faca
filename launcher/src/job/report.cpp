#include "job/report.hpp"

#include <array>
#include <string_view>

#include <fmt/format.h>
#include <sys/wait.h>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

std::string who(int rank, const RankLocation& place) {
  const std::string pid = place.pid > 0 ? fmt::format(", pid {}", place.pid) : "";
  return fmt::format("rank {} on {} (local {}{})", rank, place.host, place.local_rank, pid);
}

std::string how(const RankEnd& end) {
  if (end.without_shutdown) return "exited 0 without hvd::shutdown()";
  if (!WIFSIGNALED(end.status)) return fmt::format("exited {}", WEXITSTATUS(end.status));
  const int signal = WTERMSIG(end.status);
  return fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
}

std::string last_lines(int rank, const std::deque<Tail::Line>& lines) {
  if (lines.empty()) return fmt::format("hvdrun: rank {} had written nothing\n", rank);
  std::string text = fmt::format("hvdrun: the last lines of rank {}:\n", rank);
  for (const Tail::Line& line : lines) {
    text += fmt::format("  [{}]<{}>:{}\n", rank, line.stream == Stream::out ? "stdout" : "stderr",
                        line.text);
  }
  return text;
}

}  // namespace

std::string describe(const RankEnd& end, const RankLocation& place) {
  return fmt::format("{} {} after {:.1f} s", who(end.rank, place), how(end),
                     static_cast<double>(end.elapsed.count()) / 1000.0);
}

std::string report(const Outcome& outcome, const std::function<RankLocation(int)>& place,
                   const std::function<std::deque<Tail::Line>(int)>& tail) {
  std::string text;
  if (outcome.culprit) {
    const RankEnd& culprit = *outcome.culprit;
    if (outcome.unresponsive >= 0) {
      text += fmt::format("hvdrun: {} still runs, but rank {} has given it up\n",
                          who(outcome.unresponsive, place(outcome.unresponsive)), culprit.rank);
    }
    text += fmt::format("hvdrun: {}\n", describe(culprit, place(culprit.rank)));
    text += last_lines(culprit.rank, tail(culprit.rank));
  } else if (!outcome.trouble.empty()) {
    text += fmt::format("hvdrun: {}\n", outcome.trouble);
  }
  for (const RankEnd& other : outcome.others) {
    text += fmt::format("hvdrun: then {}\n", describe(other, place(other.rank)));
  }
  if (outcome.culprit && quoted_rank(outcome) != outcome.culprit->rank) {
    text += last_lines(quoted_rank(outcome), tail(quoted_rank(outcome)));
  }
  if (!outcome.ended.empty()) {
    const bool one = outcome.ended.size() == 1;
    text += fmt::format("hvdrun: {} {} ended by hvdrun\n", ranks_text(outcome.ended),
                        one ? "was" : "were");
  }
  return text;
}

int quoted_rank(const Outcome& outcome) {
  const RankEnd& culprit = outcome.culprit.value();
  return culprit.without_shutdown && !outcome.others.empty() ? outcome.others.front().rank
                                                             : culprit.rank;
}

std::string network_hint(const std::deque<Tail::Line>& tail) {
  constexpr std::array<std::string_view, 6> kSigns = {
      "ncclInternalError",  "ncclSystemError",  "it did not connect",
      "Connection refused", "No route to host", "Network is unreachable"};
  for (const Tail::Line& line : tail) {
    for (const std::string_view sign : kSigns) {
      if (line.text.find(sign) == std::string::npos) continue;
      return "hvdrun: if the hosts have several networks, --network-interfaces picks the one that "
             "connects them\n";
    }
  }
  return {};
}

}  // namespace hvd::launcher
