// The threads of one rank that submit and wait.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "oracle.hpp"
#include "program.hpp"

namespace hvd::sim {

class SimRank;
struct World;

class User {
 public:
  User(World& world, SimRank& rank, const RankProgram& program);

  void start();
  /// The operation has ended, and threads that wait for it continue.
  void resolved(Record& record);
  /// A process set of this program has got its id.
  void set_made(int slot, std::int32_t id) { sets_[slot] = id; }
  [[nodiscard]] bool finished() const noexcept { return running_ == 0; }
  [[nodiscard]] std::uint64_t observations() const noexcept { return observations_; }

 private:
  struct Thread {
    const std::vector<Act>* acts = nullptr;
    std::size_t next = 0;
    std::vector<Record*> submitted;  // submitted and not yet waited for
    std::vector<Record*> awaited;
    bool waits = false;
    std::uint64_t waits_so_far = 0;
    bool over = false;
  };

  void go_on(std::size_t thread, Nanos delay);
  void run(std::size_t thread);
  /// Returns false when the thread has to wait or has ended.
  bool perform(Thread& thread, std::size_t index, const Act& act);
  bool submit(Thread& thread, std::size_t index, const Act& act);
  bool control(Thread& thread, std::size_t index, Request request, int slot);
  bool wait(Thread& thread, std::size_t index, std::vector<Record*> records);
  void look(std::size_t thread, std::uint64_t wait, Nanos pause);
  bool observe(Thread& thread);
  void end(Thread& thread);

  World& world_;
  SimRank& rank_;
  const RankProgram& program_;
  std::vector<Thread> threads_;
  std::map<int, std::int32_t> sets_;  // by slot
  int controls_ = 0;                  // unnamed operations so far
  int running_ = 0;
  std::uint64_t observations_ = 0;
};

}  // namespace hvd::sim
