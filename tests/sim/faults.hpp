// The faults of a run.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <hvd/core/error.hpp>

#include "event_queue.hpp"
#include "random.hpp"

namespace hvd::sim {

struct World;

enum class FaultKind {
  // The job goes on.
  slow,       ///< everything, or all that one rank does, takes up to 120 ms
  reorder,    ///< a rank's threads run up to 8 ms late
  pause,      ///< a rank stops for less than the peer timeout, or all for longer
  partition,  ///< a stream is cut for less than the host timeout
  // With these faults the job fails, and every survivor names the culprit.
  crash,
  long_pause,
  long_partition,
  limit_pause,  ///< a stop of about the peer timeout: the job goes on, or all agree
  abort,
  backend_failure,  ///< one rank's collective fails by itself
  absence,          ///< a rank never submits what the others wait for
};
inline constexpr int kFaultKinds = 11;
[[nodiscard]] std::string_view to_string(FaultKind kind) noexcept;

/// The rank and cause that may be blamed; empty when the job must not fail.
struct Guilt {
  FaultKind kind = FaultKind::crash;
  int rank = -1;
  Errc code = Errc::peer_lost;
  bool certain = true;  ///< if false, it is possible that no rank noticed
};

/// Draws the faults of a run in advance and applies them at an event or a time.
class Faults {
 public:
  Faults(Random& random, int ranks, bool quiet);

  /// This is drawn before the program.
  [[nodiscard]] bool wants_absence() const noexcept { return fatal_ == FaultKind::absence; }
  void start(World& world);
  /// Called after every event.
  void after_event(World& world);

  [[nodiscard]] const std::optional<Guilt>& guilt() const noexcept { return guilt_; }
  [[nodiscard]] bool happened(FaultKind kind) const {
    return happened_[static_cast<std::size_t>(kind)];
  }

 private:
  void mark(FaultKind kind) { happened_[static_cast<std::size_t>(kind)] = true; }
  void strike(World& world);
  void pause(World& world, int rank, Nanos duration);
  void cut(World& world, int rank, Nanos duration);
  void check_noticed(World& world);

  Random& random_;
  int ranks_;
  bool slow_ = false;
  bool reorder_ = false;
  bool pause_ = false;
  bool partition_ = false;
  std::optional<FaultKind> fatal_;
  std::uint64_t strike_at_ = 0;  // event
  bool struck_ = false;
  std::optional<Guilt> guilt_;
  Nanos noticed_by_ = 0;  // all ranks know of it by then; 0: there is nothing to notice
  std::array<bool, kFaultKinds> happened_{};
};

}  // namespace hvd::sim
