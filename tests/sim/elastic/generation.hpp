// Models the context of one generation: its start, its collectives, and how ranks lose each other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "elastic/state.hpp"
#include "event_queue.hpp"

namespace hvd::sim::elastic {

struct Job;

/// What the error of a rank says.
struct Blame {
  int rank = -1;
  bool left = false;  ///< otherwise it is silent
};

class Generation {
 public:
  enum class Kind : std::uint8_t {
    start,
    standings,
    state,
    shards,
    gradients,  ///< of a rank's own shard and of the one that it mirrors
    step,
    metric,
    vote,
    end,
  };
  /// What the source of the state sends.
  struct Sent {
    Model model;
    Standing standing;
    Progress progress;
  };

  Generation(Job& job, std::uint32_t number, std::vector<int> workers);

  /// A rank takes part in the collective of this kind and index. `done` is called when it has
  /// completed on this rank.
  void arrive(int rank, Kind kind, int index, std::function<void()> done);
  /// A rank has no context any more. `silent`: the others do not notice that its connections close.
  void leave(int rank, const Blame& why, bool silent);
  /// Some ranks may be silent to others from now on.
  void watch();
  /// Returns the only rank that has not come to the start, or -1.
  [[nodiscard]] int missing() const;
  /// All members whose processes have not ended are stopped.
  [[nodiscard]] bool has_only_stopped() const;

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }

  std::vector<Standing> standings;
  // If states are divided: what the ranks have of earlier divisions, the number of the newest one,
  // whether a rank has a commit for this start only, and the shards that the ranks send.
  std::vector<detail::Divisions> divisions;
  std::int64_t newest_division = 0;
  bool temporary_commit = false;
  std::vector<HeldShards> shards;
  Sent sent;
  std::map<int, bool> votes;  ///< by index: whether a rank wants the end

 private:
  struct Member {
    int worker = 0;
    bool up = false;
    bool left = false;
    bool silent = false;
    Nanos left_at = 0;
    Blame why{};
  };
  struct Collective {
    std::vector<std::function<void()>> done;  ///< by rank; empty: it has not come
    std::vector<bool> completed;
    int arrived = 0;
  };
  using Key = std::pair<Kind, int>;

  void complete(int rank, Key key);
  void came_up(int rank);
  void check(int observer, int victim);
  void lose(int observer, int victim, bool silent);
  [[nodiscard]] std::optional<Nanos> silent_since(int observer, int victim) const;
  [[nodiscard]] Nanos patience(int victim) const;
  [[nodiscard]] Member& at(int rank) { return members_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const Member& at(int rank) const {
    return members_.at(static_cast<std::size_t>(rank));
  }

  Job& job_;
  std::uint32_t number_;
  std::vector<Member> members_;
  std::map<Key, Collective> collectives_;
  std::optional<Blame> verdict_;  ///< of rank 0, which most others repeat
};

}  // namespace hvd::sim::elastic
