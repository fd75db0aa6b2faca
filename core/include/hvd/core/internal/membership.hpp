// Decides which workers of an elastic job run, and which of them form a generation. It is a state
// machine without clock, process or socket: it gets events and the time, and returns orders.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/types.hpp>

namespace hvd::detail {

class Membership {
 public:
  struct Options {
    int min_np = 1;
    int max_np = 1;
    /// How long the job may be without a generation that trains, because fewer than `min_np`
    /// workers wait or generations do not start, and how long workers wait for a member of their
    /// generation whom nobody blames.
    std::chrono::milliseconds timeout{600'000};
    std::optional<int> reset_limit{};  ///< the most generations after the first
    std::chrono::milliseconds least_cooldown{1'000};
    std::chrono::milliseconds most_cooldown{3'600'000};
    /// The time that a worker which another blames as silent has to say that it waits, and that
    /// newcomers wait for others that were started with them.
    std::chrono::milliseconds settle{500};
    /// The time that the process of a worker which has left, or was killed, may take to end.
    std::chrono::milliseconds leaving{5'000};
  };

  /// The exit code of hvdrun when the job has lost too many workers, or too often.
  static constexpr int kExitRetry = 75;
  /// The exit code when another worker has finished the program, and a host was lost before its own
  /// workers had.
  static constexpr int kExitHostLost = 69;

  // The orders. Workers are numbered in the order in which they are started, hosts in the order in
  // which they were first listed.
  struct Start {
    int worker = 0;
    std::size_t host = 0;
  };
  /// These workers, which all wait, are the ranks of a new generation, in this order. Workers of a
  /// host follow each other.
  struct Form {
    std::uint32_t generation = 0;
    std::vector<int> workers{};
  };
  struct Tell {
    int worker = 0;
    ElasticOrder order;  ///< Change or Leave
  };
  struct Kill {
    int worker = 0;
    std::string why{};
  };
  /// The job is over, and hvdrun exits with `code`. Workers that still run are ended.
  struct Finish {
    int code = 0;
    std::string why{};  ///< empty after success, and when the code is that of a worker
  };
  using Order = std::variant<Start, Form, Tell, Kill, Finish>;
  using Orders = std::vector<Order>;

  explicit Membership(const Options& options) : options_(options) {}

  // The events. No order follows a Finish.

  /// The job may use these slots now. There is an entry for each host that was ever listed, which
  /// is 0 if the host is not listed now.
  [[nodiscard]] Orders on_hosts(const std::vector<int>& slots, Clock::time_point now);
  [[nodiscard]] Orders on_waits(int worker, const Waits& waits, Clock::time_point now);
  /// The process of the worker has ended with this exit code, as from a shell.
  [[nodiscard]] Orders on_exit(int worker, int code, Clock::time_point now);
  /// The agent of the host is lost, and so are its workers.
  [[nodiscard]] Orders on_host_lost(std::size_t host, Clock::time_point now);
  [[nodiscard]] Orders on_time(Clock::time_point now) { return decide(now); }

  /// Returns when `on_time` must be called, if nothing happens before.
  [[nodiscard]] std::optional<Clock::time_point> wake_up() const { return wake_up_; }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
  /// Returns whether a generation has formed of which no member has ended or waits.
  [[nodiscard]] bool runs() const noexcept { return running_ && !breaking_; }
  [[nodiscard]] std::size_t host_of(int worker) const { return worker_at(worker).host; }

 private:
  friend struct StateReader;  // tests/explore reads the whole state

  enum class State : std::uint8_t {
    starting,  ///< it has not said yet that it waits
    waiting,
    member,   ///< of the current generation
    leaving,  ///< it was told to leave
    over,
  };
  struct Worker {
    std::size_t host = 0;
    State state = State::starting;
    bool was_member = false;
    bool has_state = false;  ///< it has had the state of the training
    bool sent_away = false;  ///< its host cannot be reached from others
    bool leaves = false;     ///< it asks to leave
    bool told = false;       ///< it was told that this generation is to end
    std::uint32_t assigned = 0;
    Clock::time_point since{};  ///< when it was started, or began to wait
    /// When it is killed because it is blamed. Once `killed` is set: when that was ordered.
    std::optional<Clock::time_point> killed_at{};
    bool unheard = false;  ///< it is blamed, and not only because it has left
    bool killed = false;   ///< in this generation
  };
  struct Host {
    int slots = 0;        ///< 0: not listed
    int given_up = 0;     ///< slots whose workers have asked to leave
    bool asked = false;   ///< a worker of it has asked to leave since a generation formed last
    bool leaves = false;  ///< none of its workers goes on
    std::chrono::milliseconds cooldown{0};  ///< the last one; 0: none
    Clock::time_point free_at{};
    Clock::time_point started_at{};  ///< when a worker was started on it last
    std::optional<Clock::time_point> failed_at{};
  };

  [[nodiscard]] Worker& worker_at(int worker) {
    return workers_.at(static_cast<std::size_t>(worker));
  }
  [[nodiscard]] const Worker& worker_at(int worker) const {
    return workers_.at(static_cast<std::size_t>(worker));
  }
  [[nodiscard]] int count(State state) const;
  [[nodiscard]] bool may_lead(const Worker& worker) const;
  [[nodiscard]] bool in_motion(const Worker& worker) const;
  [[nodiscard]] int slots_of(const Host& host) const;
  void give_up(std::size_t host, int slots);
  void let_hosts_leave();
  /// `since` is when the host was tried again.
  void fail(std::size_t host, Clock::time_point since, Clock::time_point now);
  void begin_breaking(Clock::time_point now, bool is_loss = false);
  void exclude(std::size_t host, Clock::time_point now);
  void separate_hosts(Clock::time_point now);
  void wake_at(Clock::time_point time);

  [[nodiscard]] Orders decide(Clock::time_point now);
  void break_up(Orders& orders, Clock::time_point now);
  void send_away(Orders& orders);
  void form(Orders& orders, Clock::time_point now);
  void ask_for_change(Orders& orders, Clock::time_point now);
  void start_workers(Orders& orders, Clock::time_point now);
  void finish(Orders& orders, int code, const std::string& why);
  [[nodiscard]] std::vector<int> candidates() const;

  Options options_;
  std::vector<Host> hosts_;
  std::vector<Worker> workers_;
  std::uint32_t generation_ = 0;
  std::vector<int> ranks_;  ///< the workers of the generation
  bool running_ = false;    ///< a generation has formed and is not broken up
  bool breaking_ = false;   ///< a member of it has ended or waits
  Clock::time_point breaking_since_{};
  bool explained_ = false;    ///< it has trained, a member was lost or leaves, or it was to change
  bool all_started_ = false;  ///< no member has said that it ended before that member had the state
  std::optional<int> did_not_come_;  ///< the worker whom one blames for a start that has failed
  std::vector<std::pair<int, int>> silent_;  ///< who blames whom as silent
  bool trained_ = false;                     ///< a step may have been completed
  bool done_ = false;                        ///< a member has finished the program
  bool finished_ = false;
  int code_ = 0;
  int first_failure_ = 0;  ///< the code of the first worker that failed
  std::optional<Clock::time_point> too_few_since_;
  std::optional<Clock::time_point> wake_up_;
};

}  // namespace hvd::detail
