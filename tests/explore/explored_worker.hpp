// The state of one worker of an elastic job, and of a generation, as values. The worker takes the
// same steps as the simulator's in tests/sim/elastic/worker.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/internal/recovery.hpp>

#include "elastic/generation.hpp"
#include "elastic/state.hpp"
#include "state_hash.hpp"

namespace hvd::explore {

using sim::elastic::Blame;
using CollectiveKind = sim::elastic::Generation::Kind;

/// A message between hvdrun and a worker, encoded.
struct EncodedMessage {
  explicit EncodedMessage(Bytes encoded);

  std::shared_ptr<const Bytes> bytes;
  StateHash hash;
};

struct ExploredWorker {
  enum class Phase : std::uint8_t { loading, waiting, starting, training, leaving, over };

  std::size_t host = 0;
  Phase phase = Phase::loading;
  bool was_paused = false;  ///< it has been stopped at some time, and may run again
  std::optional<Clock::time_point> paused_at{};

  // These messages are on their way.
  std::vector<EncodedMessage> to_hvdrun{};
  std::vector<EncodedMessage> to_worker{};
  std::optional<int> report{};  ///< its exit code, to hvdrun; it may overtake its messages
  bool kill = false;

  // ElasticWorker
  std::vector<EncodedMessage> inbox{};
  detail::Waits waits{};
  bool asked = false;
  bool change_ordered = false;
  std::uint32_t generation = 0;
  int rank = -1;
  Clock::time_point start_ends{};  ///< when it gives up the start

  // ElasticState
  detail::Standing standing{};
  sim::elastic::Model model{};
  sim::elastic::Progress progress{};
  sim::elastic::Model commit_model{};
  sim::elastic::Progress commit_progress{};
  detail::StateSource source{};
  std::vector<sim::elastic::HeldShards> held{};
  sim::elastic::HeldShards current{};
  std::int64_t newest_division = 0;
  bool temporary_commit = false;
  bool synchronized = false;
  bool has_had_state = false;

  // The training loop.
  bool computing = false;
  std::optional<CollectiveKind> awaits{};  ///< the collective in which it waits for the others
  bool finished = false;
  sim::elastic::SampleSet recorded = 0;
  sim::elastic::SampleSet batch = 0;
  int step = 0;
  int votes = 0;    ///< how many it has cast in this generation
  int counted = 0;  ///< of how many votes it knows the result

  // Only the invariants need these.
  std::uint32_t heard = 0;     ///< the generation of the last message that hvdrun got
  std::uint32_t assigned = 0;  ///< the last generation that hvdrun has made with it
  bool told_to_leave = false;
  bool known_over = false;
  std::optional<Clock::time_point> blamed_at{};

  [[nodiscard]] bool alive() const { return phase != Phase::over; }
  [[nodiscard]] bool running() const { return alive() && !paused_at; }
  [[nodiscard]] bool has_whole_state() const {
    return alive() && phase != Phase::leaving && standing.kind == detail::Standing::whole;
  }
  void add_to(StateHasher& hasher, Clock::time_point now, int samples) const;
};

struct ExploredGeneration {
  struct Member {
    int worker = 0;
    bool up = false;
    bool left = false;
    bool in_peace = false;  ///< it has left after the program's end
    Blame why{};
  };
  struct Collective {
    CollectiveKind kind{};
    int index = 0;
    unsigned arrived = 0;    ///< a bit for each rank
    unsigned completed = 0;  ///< a bit for each rank
  };

  std::uint32_t number = 0;
  std::vector<Member> members{};
  std::vector<Collective> collectives{};
  std::vector<detail::Standing> standings{};
  std::vector<detail::Divisions> divisions{};
  std::int64_t newest_division = 0;
  bool temporary_commit = false;
  std::vector<sim::elastic::HeldShards> shards{};
  // The source of the state sends these.
  sim::elastic::Model sent_model{};
  detail::Standing sent_standing{};
  sim::elastic::Progress sent_progress{};
  unsigned votes = 0;  ///< a bit for each vote: whether a rank wants the end

  ExploredGeneration(std::uint32_t number, const std::vector<int>& workers);
  [[nodiscard]] int size() const { return static_cast<int>(members.size()); }
  [[nodiscard]] unsigned everybody() const { return (1U << members.size()) - 1; }
  [[nodiscard]] Collective& collective(CollectiveKind kind, int index);
  /// Whether all ranks have come to it, and it has not completed on this one.
  [[nodiscard]] bool may_complete(CollectiveKind kind, int index, int rank) const;
  void add_to(StateHasher& hasher, int samples) const;
};

}  // namespace hvd::explore
