// Checks whether the frames of one agent arrive in an allowed order with allowed contents. An agent
// may be the hvdrun of another node, so everything is checked before hvdrun acts on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// Gets the frames of one agent and returns what is wrong with them.
class AgentSession {
 public:
  /// Checks the agent of host number `host`. Only the first host's agent serves the store.
  /// `forwards_signals` says that the agent is the hvdrun of another node, whose user may send it
  /// signals for the whole job.
  AgentSession(const Plan& plan, std::size_t host, bool forwards_signals);
  /// Checks an agent of an elastic job, which has the workers that `StartWorker` names.
  AgentSession() = default;

  /// Takes note of a frame from the agent. Returns what is wrong with it, if anything: a frame that
  /// only hvdrun sends, a rank that does not run on this host, more output than was credited, a
  /// signal that a user may not send, or the wrong order. Then the session is broken, and hvdrun
  /// ignores the agent's later frames.
  [[nodiscard]] std::optional<std::string> on_frame(const Frame& frame);
  /// Takes note of a frame to the agent. Prepare, Launch, End, StartWorker and Serve change which
  /// frames the agent may send.
  void on_sent(const Frame& frame);

  [[nodiscard]] bool broken() const noexcept { return broken_; }
  [[nodiscard]] bool prepared() const noexcept { return prepared_; }
  [[nodiscard]] bool all_started() const noexcept;
  /// Returns whether no process of the job is left on the host.
  [[nodiscard]] bool gone() const noexcept { return gone_; }
  [[nodiscard]] std::vector<int> running_ranks() const;
  /// Returns the bytes of output since the last call, which hvdrun has to credit.
  [[nodiscard]] std::uint32_t take_debt() noexcept;

 private:
  enum class State : std::uint8_t { waiting, running, over };
  struct Rank {
    int rank = 0;
    State state = State::waiting;
  };

  // There is a function for each kind of frame that an agent may send. Each may throw a Violation.
  void check(const Prepared& frame);
  void check(const Refused& frame);
  void check(const Started& frame);
  void check(const Output& frame);
  void check(const Exited& frame);
  void check(const RankUsage& frame);
  void check(const RankAnswer& frame);
  void check(const Gone& frame);
  void check(const Done& frame);
  void check(const Beat&) {}
  void check(const Forward& frame);
  void check(const ElasticMessage& frame);
  void check(const Served& frame);
  template <typename T>
  void check(const T& frame);  ///< for frames that only hvdrun sends

  /// Returns the entry of a rank that has been started. Otherwise it throws a Violation.
  [[nodiscard]] Rank& started(int rank);
  [[nodiscard]] Rank& find(int rank);

  std::vector<Rank> ranks_;  ///< by local rank, or in the order of their start
  bool elastic_ = true;
  bool serves_store_ = false;
  bool forwards_signals_ = false;
  bool launched_ = false;  ///< Launch was sent
  bool ending_ = false;    ///< End was sent
  bool prepared_ = false;
  bool gone_ = false;
  bool over_ = false;  ///< Refused or Done has arrived
  bool broken_ = false;
  std::uint32_t debt_ = 0;
  RendezvousReach reach_ = RendezvousReach::elsewhere;  ///< of the store that Prepare asks for
  Serve asked_to_serve_;  ///< without an answer; generation 0: there is none
};

}  // namespace hvd::launcher
