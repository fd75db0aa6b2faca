// A worker of an elastic job, which checks every sum, and does what its arguments plan:
//   until=GENERATION   its function returns in this generation, or in a later one
//   asks_to_stop       it calls `stop_requested` instead of `check_host_updates`
//   WORKER@GENERATION=ACTION   what that worker does in the fourth step of that generation
// It also runs in a job that is not elastic.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <hvd/elastic.hpp>
#include <hvd/ops/internal/context_follower.hpp>

namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("wrong ") + what);
}

/// Returns the number of open descriptors and of shared mappings.
std::string held() {
  using Entries = std::filesystem::directory_iterator;
  const auto descriptors = std::distance(Entries("/proc/self/fd"), Entries());
  std::ifstream maps("/proc/self/maps");
  int shared = 0;
  std::string range;
  std::string rights;
  for (std::string rest; maps >> range >> rights && std::getline(maps, rest);) {
    shared += rights.back() == 's' ? 1 : 0;
  }
  return std::to_string(descriptors) + " descriptors, " + std::to_string(shared) + " mappings";
}

struct Plan {
  unsigned until = 1;
  int worker = 0;
  bool asks_to_stop = false;
  std::vector<std::string> actions;

  Plan(int argc, char** argv) : actions(argv + 1, argv + argc) {
    const char* number = std::getenv("TEST_WORKER");
    if (number != nullptr) worker = std::atoi(number);
    for (const std::string& action : actions) {
      asks_to_stop = asks_to_stop || action == "asks_to_stop";
      if (action.rfind("until=", 0) == 0)
        until = static_cast<unsigned>(std::stoul(action.substr(6)));
    }
  }
  /// Returns whether this worker has the action in this generation.
  [[nodiscard]] bool has(const std::string& action) const {
    return any([&](const std::string& one) { return one == std::to_string(worker) + of(action); });
  }
  /// Returns whether any worker has it.
  [[nodiscard]] bool anyone_has(const std::string& action) const {
    return any([&](const std::string& one) { return one.find(of(action)) != std::string::npos; });
  }

 private:
  template <class Predicate>
  [[nodiscard]] bool any(const Predicate& is) const {
    return std::any_of(actions.begin(), actions.end(), is);
  }
  [[nodiscard]] static std::string of(const std::string& action) {
    return "@" + std::to_string(hvd::elastic::generation()) + "=" + action;
  }
};

/// Counts its calls.
struct Follower final : hvd::detail::ContextFollower {
  hvd::Context* attached = nullptr;

  void detach() noexcept override { attached = nullptr; }
  void attach(hvd::Context& context) override {
    check(attached == nullptr, "attachment");
    attached = &context;
  }
};

struct State final : hvd::ElasticStateBase {
  explicit State(const Plan& given) : plan(given) {}

  const Plan& plan;
  std::int64_t steps = 0;  ///< completed
  int resets = 0;
  int ends = 0;

  void commit() override {}
  void restore() override {}
  void synchronize(hvd::Context& context) override {
    if (plan.has("die_in_synchronize")) ::raise(SIGKILL);
    const auto all = hvd::allgather(std::span(&steps, 1));
    check(static_cast<int>(all.size()) == context.size(), "number of ranks");
    const auto newest = std::max_element(all.begin(), all.end());
    check(*newest - steps <= 1 || steps == 0, "number of steps");
    steps = *newest;
    hvd::broadcast(std::span(&steps, 1), static_cast<int>(newest - all.begin()));
  }
  void generation_ended() noexcept override { ends += hvd::is_initialized() ? 1 : 100; }
};

/// Checks the ranks, and that all have completed as many steps.
void sum_up(const State& state) {
  const auto size = static_cast<double>(hvd::size());
  const auto steps = static_cast<double>(state.steps);
  const std::vector<double> own{1.0, static_cast<double>(hvd::rank()), steps};
  std::vector<double> sums(own.size());
  hvd::allreduce(std::span(own), std::span(sums), {.name = "sums", .op = hvd::ReduceOp::sum});
  check(sums == std::vector{size, size * (size - 1) / 2, size * steps}, "sums");
}

void act(const Plan& plan) {
  if (plan.anyone_has("die")) {
    std::vector<float> values(std::size_t{1} << 22, 1.0F);
    auto work = hvd::allreduce_async(values.data(), values.data(), std::ssize(values),
                                     hvd::DType::f32, {.name = "large"});
    if (plan.has("die")) ::raise(SIGKILL);
    work.wait();
    throw std::runtime_error("a collective without one of its ranks succeeded");
  }
  if (plan.anyone_has("lack_memory")) {
    const std::vector<float> values(std::size_t{1} << 24, 1.0F);
    constexpr rlimit kNone{0, 0};
    if (plan.has("lack_memory")) check(::setrlimit(RLIMIT_AS, &kNone) == 0, "limit");
    static_cast<void>(hvd::allgather(std::span(values)));
    throw std::runtime_error("a collective of a rank without memory succeeded");
  }
  if (plan.has("stop")) ::raise(SIGSTOP);
  if (plan.has("terminate")) ::raise(SIGTERM);
  if (plan.has("throw")) throw std::runtime_error("planned");
}

void train(const Plan& plan, State& state, const Follower& follower) {
  constexpr int kActionAt = 4;
  constexpr int kLast = 6;
  check(follower.attached == &hvd::context(), "follower");
  say("generation " + std::to_string(hvd::elastic::generation()) + " rank " +
      std::to_string(hvd::rank()) + " of " + std::to_string(hvd::size()));
  for (int step = 1;; ++step) {
    if (step == kActionAt) act(plan);
    sum_up(state);
    ++state.steps;
    if (step == kLast) {
      say("generation " + std::to_string(hvd::elastic::generation()) + " holds " + held());
    }
    if (plan.has("return_early")) return;
    const bool last = hvd::elastic::generation() >= plan.until || !hvd::elastic::active();
    if (last && step >= kLast) return;
    if (plan.asks_to_stop) {
      check(!hvd::stop_requested(), "stop");
    } else {
      hvd::elastic::check_host_updates();
    }
  }
}

void look_outside(const char* when) {
  hvd::init();
  try {
    say(std::string(when) + " rank " + std::to_string(hvd::rank()));
  } catch (const hvd::Error& error) {
    say(std::string(when) + " " + std::string(to_string(error.code())) + ": " + error.what());
  }
}

int run(const Plan& plan) {
  if (hvd::elastic::active()) look_outside("before");
  Follower follower;
  State state(plan);
  state.on_reset([&] {
    check(hvd::size() > 0 && follower.attached != nullptr, "reset");
    ++state.resets;
  });
  const bool finished = hvd::elastic_run(state, [&] { train(plan, state, follower); });
  say(std::string(finished ? "finished" : "left") + " after " + std::to_string(state.resets) +
      " resets and " + std::to_string(state.ends) + " ends");
  if (hvd::elastic::active()) look_outside("after");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(Plan(argc, argv));
  } catch (const std::exception& error) {
    say(std::string("threw ") + error.what());
    return 4;
  }
}
