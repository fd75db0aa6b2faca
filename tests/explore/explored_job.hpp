// One state of an elastic job: the product's Membership, the messages on their way, and the
// workers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/internal/membership.hpp>

#include "explorable.hpp"
#include "explored_worker.hpp"
#include "job_facts.hpp"

namespace hvd::explore {

class ExploredJob final : public Explorable {
 public:
  explicit ExploredJob(const Scenario& scenario);

  [[nodiscard]] std::unique_ptr<Explorable> copy() const override {
    return std::make_unique<ExploredJob>(*this);
  }
  [[nodiscard]] std::vector<Move> moves() const override;
  void apply(const Move& move, std::vector<ChartLine>* chart = nullptr) override;
  [[nodiscard]] StateHash hash() const override;
  void check_end() const override;
  [[nodiscard]] std::vector<std::string> columns() const override;

 private:
  friend class WorkerSteps;

  /// A generation whose rendezvous store is not served yet.
  struct ToServe {
    detail::Membership::Form form;
    std::vector<detail::Membership::Tell> later{};
  };

  [[nodiscard]] ExploredWorker& at(int worker) {
    return workers_.at(static_cast<std::size_t>(worker));
  }
  [[nodiscard]] const ExploredWorker& at(int worker) const {
    return workers_.at(static_cast<std::size_t>(worker));
  }
  [[nodiscard]] bool is_seen_silent(const ExploredWorker& worker) const;
  [[nodiscard]] std::vector<Blame> blames(const ExploredWorker& observer) const;
  /// Returns the index of the collective in which the worker waits.
  [[nodiscard]] static int index_of(const ExploredWorker& worker);
  void add_moves(int worker, std::vector<Move>& moves) const;
  void add_faults(std::vector<Move>& moves) const;
  [[nodiscard]] std::optional<Clock::time_point> next_timer() const;

  // These functions are the steps of hvdrun and its agents.
  void obey(const detail::Membership::Orders& orders);
  void carry_out(const detail::Membership::Start& order);
  void carry_out(const detail::Membership::Form& order);
  void carry_out(const detail::Membership::Tell& order);
  void carry_out(const detail::Membership::Kill& order);
  void carry_out(const detail::Membership::Finish& order);
  void tell(int worker, const detail::ElasticOrder& order);
  void serve();
  void hear(int worker);
  void hear(int worker, const detail::Waits& waits);
  void hear_end(int worker);
  void lose_agent(std::size_t host);
  void list(const std::vector<int>& slots);

  void deliver(int worker, int what);
  void forget_generations();
  [[nodiscard]] bool nobody_can_proceed() const;
  template <class... Args>
  void say(int worker, fmt::format_string<Args...> format, Args&&... args) const {
    if (chart_) {
      chart_->push_back({worker + 1, -1, fmt::format(format, std::forward<Args>(args)...)});
    }
  }
  void say_message(int from, int to, std::string text) const {
    if (chart_) chart_->push_back({to + 1, from + 1, std::move(text)});
  }

  const Scenario* scenario_;
  detail::Membership::Options options_;
  int samples_;
  Clock::time_point now_;
  int faults_left_;
  bool had_fault_ = false;  ///< other than one slot more
  detail::Membership membership_;
  std::vector<int> slots_;
  std::vector<ExploredWorker> workers_;
  std::map<std::uint32_t, ExploredGeneration> generations_;
  std::optional<ToServe> to_serve_;
  std::optional<detail::Membership::Finish> end_;
  JobFacts facts_;
  std::vector<ChartLine>* chart_ = nullptr;
};

}  // namespace hvd::explore
