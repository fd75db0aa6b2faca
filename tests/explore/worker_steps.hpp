// The steps of a worker of an elastic job: `ElasticWorker`, `elastic_run`, `ElasticState` and a
// user's training loop, as in tests/sim/elastic/worker.cpp.
#pragma once

#include <string>

#include "explored_job.hpp"

namespace hvd::explore {

class WorkerSteps {
 public:
  WorkerSteps(ExploredJob& job, int number) : job_(job), number_(number), self_(job.at(number)) {}

  // What may happen to it.
  void say_waits(const Blame& blame);
  void on_order();
  void ask_to_leave();
  void give_up_start();
  void end_computing();
  void complete(CollectiveKind kind, int index);
  void end_generation(const Blame& blame);
  void die(int code);

 private:
  [[nodiscard]] ExploredGeneration& generation() const;
  void arrive(CollectiveKind kind, int index);
  void tell();
  void read_orders();
  void take(const detail::Assignment& assignment);
  void gather();
  void choose();
  void receive();
  void go_on_with_shards();
  void assemble();
  void compare_shards();
  void begin_generation();
  void commit(std::int64_t number);
  [[nodiscard]] sim::elastic::SampleSet next_batch() const;
  void next_step();
  [[nodiscard]] sim::elastic::Model stepped() const;
  void applied();
  void end_iteration();
  void await_last_vote();
  void read_vote_and_vote_again();
  void shut_down();
  void end();

  ExploredJob& job_;
  int number_;
  ExploredWorker& self_;
};

}  // namespace hvd::explore
