// Models a process of an elastic job: `ElasticWorker`, `elastic_run`, `ElasticState`, and a user's
// training loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include <hvd/core/internal/elastic_messages.hpp>

#include "elastic/generation.hpp"
#include "elastic/state.hpp"

namespace hvd::sim::elastic {

class Worker {
 public:
  Worker(Job& job, int number, std::size_t host);

  void start();
  /// A packet has come to its socket.
  void on_order(const Bytes& packet);
  /// It gets SIGTERM.
  void ask_to_leave();
  void die(int code, bool silent = false);
  /// Its context has failed.
  void fail(const Blame& blame);
  void pause(Nanos until);

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] std::size_t host() const { return host_; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] bool waits() const { return alive_ && phase_ == Phase::waiting; }
  /// The state of the training is in this process, and the process will not end by itself.
  [[nodiscard]] bool has_whole_state() const {
    return alive_ && phase_ != Phase::leaving && standing_.kind == Standing::whole;
  }
  [[nodiscard]] bool has_had_state() const { return has_had_state_; }
  [[nodiscard]] bool asked_to_leave() const { return asked_; }
  [[nodiscard]] bool struck() const { return struck_; }
  void strike() { struck_ = true; }
  [[nodiscard]] std::optional<Nanos> paused_since() const;
  [[nodiscard]] Nanos woke_at() const;

 private:
  enum class Phase : std::uint8_t {
    loading,
    waiting,
    starting,
    training,
    ending,   ///< the generation has ended, and the worker has not said so yet
    leaving,  ///< its process is about to end
  };
  struct Commit {
    Model model;
    Progress progress;
  };

  void after(Nanos delay, std::function<void()> action);
  /// As `after`, for a time in which the worker does not notice that its context has failed.
  void compute(Nanos delay, std::function<void()> action);
  void say_waits(const Blame& blame);
  void tell();
  void read_orders();
  void take(const detail::Assignment& assignment);
  void interrupt();
  void gather();
  void choose();
  void receive();
  void go_on_with_shards();
  void assemble();
  void begin_generation();
  void next_step();
  void decide(SampleSet batch);
  /// The model after a step with this batch.
  [[nodiscard]] Model stepped(SampleSet batch) const;
  void applied(SampleSet batch);
  void end_iteration(SampleSet batch);
  void vote();
  void count_votes();
  void shut_down();
  void end_generation(const Blame& blame);
  void exit_later();
  void commit(std::int64_t number);
  [[nodiscard]] SampleSet next_batch() const;

  Job& job_;
  int number_;
  std::size_t host_;
  bool alive_ = true;
  bool struck_ = false;  ///< it was stopped or cut off
  Nanos paused_at_ = 0;
  Nanos paused_until_ = 0;

  // ElasticWorker
  Phase phase_ = Phase::loading;
  std::deque<Bytes> inbox_;
  detail::Waits waits_;
  bool asked_ = false;
  bool change_ordered_ = false;
  std::uint32_t number_of_generation_ = 0;
  int rank_ = -1;
  Generation* generation_ = nullptr;

  // ElasticState
  Standing standing_;
  Model model_;
  Progress progress_;
  Commit copy_;
  detail::StateSource source_;    ///< of this generation
  std::vector<HeldShards> held_;  ///< of earlier divisions
  HeldShards current_;            ///< of this generation's, which has number 0 until it begins
  std::int64_t newest_division_ = 0;
  bool temporary_commit_ = false;
  bool synchronized_ = false;
  bool has_had_state_ = false;
  bool agreed_ = false;

  // the training loop
  bool busy_ = false;
  std::optional<Blame> failure_;
  bool finished_ = false;
  int epoch_ = 0;
  SampleSet recorded_ = 0;
  int step_ = 0;  ///< in this generation
  int votes_ = 0;
  int counted_ = 0;  ///< votes that have completed on this rank
  bool awaits_vote_ = false;
};

}  // namespace hvd::sim::elastic
