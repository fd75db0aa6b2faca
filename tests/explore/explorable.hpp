// The explorer searches the states of a model. Each state is a value, from which moves lead to
// others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scenario.hpp"
#include "state_hash.hpp"

namespace hvd::explore {

/// Each model uses some of these kinds. In an elastic job `rank` is a worker, and some moves mean
/// something else than said here: `user` ends the loading, the computing or the process, `deliver`
/// says which kind of message, `complete` has 1 for the vote and 0 for another collective, `fail`
/// encodes a Blame, and `crash` loses no message.
struct Move {
  enum class Kind : std::uint8_t {
    user,      ///< the next step of the program, or the shutdown after it
    task,      ///< the loop runs what was posted to it first; the store of a generation is served
    deliver,   ///< the first message from rank `argument`, or the end of its stream
    take,      ///< the executor takes a batch
    arrive,    ///< it announces the turn that it has taken
    complete,  ///< one tensor of a collective completes; a collective completes on this worker
    fail,      ///< the collective fails, and its backend blames rank `argument` - 1
    executor_ends,
    leave,       ///< the rank closes its streams
    impatience,  ///< the rank has waited for long, and asks for a thaw, or gives up a start
    time,        ///< a tick of all ranks that run; to when the next timer expires
    // Faults, and what may happen but need not.
    crash,  ///< `argument` says how many of its last messages are lost
    pause,
    proceed,
    cut,  ///< the stream to rank 0 is cut
    asked_to_leave,
    slot_added,    ///< discovery lists one slot more
    host_removed,  ///< discovery lists host `rank` no longer
    agent_lost,    ///< the agent of host `rank` ends, and its workers with it
  };
  Kind kind = Kind::user;
  std::uint8_t rank = 0;
  std::uint16_t argument = 0;

  friend bool operator==(const Move&, const Move&) = default;
};

/// A line of a chart.
struct ChartLine {
  int column = 0;
  int from = -1;  ///< the column of the sender of a message; -1: an event
  std::string text;
};

class Explorable {
 public:
  virtual ~Explorable() = default;

  [[nodiscard]] virtual std::unique_ptr<Explorable> copy() const = 0;
  /// Every move that is possible, in an order that depends on the state only.
  [[nodiscard]] virtual std::vector<Move> moves() const = 0;
  /// Throws Violation, or what the product throws.
  virtual void apply(const Move& move, std::vector<ChartLine>* chart = nullptr) = 0;
  [[nodiscard]] virtual StateHash hash() const = 0;
  /// Checks a state in which nothing more happens by itself.
  virtual void check_end() const = 0;
  /// The heads of a chart's columns.
  [[nodiscard]] virtual std::vector<std::string> columns() const = 0;
};

/// Returns the first state of any scenario, which refers to `scenario`. For an elastic job it calls
/// `first_job`.
[[nodiscard]] std::unique_ptr<Explorable> first_state(const Scenario& scenario);
[[nodiscard]] std::unique_ptr<Explorable> first_job(const Scenario& scenario);

}  // namespace hvd::explore
