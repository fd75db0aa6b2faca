// Models hvdrun and its agents: `ElasticJob` with the product's Membership.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <hvd/core/internal/elastic_messages.hpp>

#include "elastic/plan.hpp"

namespace hvd::sim::elastic {

struct Job;

class Driver {
 public:
  Driver(Job& job, const Membership::Options& options) : job_(job), membership_(options) {}

  void list(const std::vector<int>& slots);
  /// A worker sends a message.
  void send(int worker, const Bytes& packet);
  void exited(int worker, int code);
  /// The agent of the host is lost.
  void lose(std::size_t host);
  /// The host of the agent is silent from now on.
  void lose_later(std::size_t host);

  [[nodiscard]] const std::optional<Membership::Finish>& end() const { return end_; }
  [[nodiscard]] std::uint32_t generation() const { return membership_.generation(); }
  [[nodiscard]] const std::vector<int>& slots() const { return slots_; }

 private:
  struct Host {
    bool over = true;
    bool silent = false;  ///< its agent is dead, which hvdrun does not know yet
    int incarnation = 0;  ///< of its agent
  };
  struct Forming {
    Membership::Form form;
    std::size_t host = 0;
    std::vector<Membership::Tell> later{};
  };

  void obey(const Membership::Orders& orders);
  void carry_out(const Membership::Start& order);
  void carry_out(const Membership::Form& order);
  void carry_out(const Membership::Tell& order);
  void carry_out(const Membership::Kill& order);
  void carry_out(const Membership::Finish& order);
  void tell(int worker, const detail::ElasticOrder& order);
  void served(std::uint32_t generation);
  [[nodiscard]] Host& at(std::size_t host);
  /// As Job::after, unless the agent of the host is another one by then.
  void through_agent(std::size_t host, Nanos delay, std::function<void()> action);

  Job& job_;
  Membership membership_;
  std::vector<int> slots_;
  std::vector<Host> hosts_;
  std::vector<Nanos> from_worker_;  ///< when the last message of a worker arrives
  std::vector<Nanos> to_worker_;
  std::optional<Forming> forming_;
  std::optional<Membership::Finish> end_;
  std::uint64_t timer_ = 0;
};

}  // namespace hvd::sim::elastic
