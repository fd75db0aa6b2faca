// All parts of one run of an elastic job.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "elastic/driver.hpp"
#include "elastic/generation.hpp"
#include "elastic/oracle.hpp"
#include "elastic/plan.hpp"
#include "elastic/worker.hpp"
#include "event_queue.hpp"
#include "random.hpp"
#include "trace.hpp"

namespace hvd::sim::elastic {

struct Job {
  Job(std::uint64_t seed, int ranks, bool verbose);

  void run();

  // Who there is.
  void add_worker(int number, std::size_t host);
  void add_generation(std::uint32_t number, const std::vector<int>& workers);
  [[nodiscard]] Worker& worker(int number) { return *workers.at(static_cast<std::size_t>(number)); }
  [[nodiscard]] Generation& generation(std::uint32_t number) { return *generations.at(number); }
  [[nodiscard]] bool is_alive(int number) { return worker(number).alive(); }
  [[nodiscard]] std::size_t host_of(int number) { return worker(number).host(); }
  [[nodiscard]] std::optional<Nanos> paused_since(int number) {
    return worker(number).paused_since();
  }
  [[nodiscard]] Nanos woke_at(int number) { return worker(number).woke_at(); }

  // Time.
  [[nodiscard]] Clock::time_point now() const { return time_point_at(events.now()); }
  [[nodiscard]] Nanos nanos(Clock::time_point time) const;
  [[nodiscard]] Nanos local(std::size_t host);
  /// Of a message between hvdrun and a worker.
  [[nodiscard]] Nanos message(std::size_t host);
  /// Of a collective.
  [[nodiscard]] Nanos transfer(int worker);

  // Faults.
  /// A fault may happen here.
  void boundary();
  /// hvdrun has chosen the members of a generation.
  void forming(const std::vector<int>& members);
  /// The worker begins to send its state to others.
  void sends_state(int worker);
  [[nodiscard]] std::optional<Nanos> cut_since(std::size_t a, std::size_t b) const;
  [[nodiscard]] bool is_down(std::size_t host) const;
  [[nodiscard]] bool was_cut(std::size_t host) const;

  Random random;
  EventQueue events;
  Trace trace;
  Plan plan;
  Oracle oracle;
  Driver driver;
  std::vector<std::unique_ptr<Worker>> workers;
  std::map<std::uint32_t, std::unique_ptr<Generation>> generations;
  std::array<bool, kFaultKinds> faults{};  ///< those that happened
  bool rank_0_struck = false;

 private:
  struct Cut {
    std::size_t a = 0;
    std::size_t b = 0;
    Nanos since = 0;
    Nanos until = 0;
  };
  void strike(const FaultPlan& fault);
  [[nodiscard]] Worker* victim(const FaultPlan& fault);
  void watch_all();
  void end_if_alone(int number);
  [[nodiscard]] int slowness(std::size_t host) const;

  std::uint64_t boundaries_ = 0;
  std::size_t next_fault_ = 0;
  std::vector<Cut> cuts_;
  bool sender_dies_ = false;                ///< the next that sends its state
  std::optional<int> leaves_when_forming_;  ///< the drawn number of the member
  struct HostState {
    Nanos slow_until = 0;
    Nanos down_until = 0;
  };
  std::map<std::size_t, HostState> hosts_;
};

}  // namespace hvd::sim::elastic
