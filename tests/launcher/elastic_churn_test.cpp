// Ranks of an elastic job over two hosts are killed and join at random, and nothing leaks.
// HVD_CHURN_ROUNDS=1000 makes it a long run, which prints its figures; HVD_CHURN_SEED repeats one.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hvdrun.hpp"
#include "two_hosts.hpp"

namespace hvd::launcher {
namespace {

using testing::IsEmpty;

constexpr int kRanks = 4;
/// The first rounds, in which each kind of loss comes once, show what a settled job holds.
constexpr int kFirst = 10;

/// What a kind of process holds: hvdrun, an agent, its guard or a worker.
struct Holding {
  std::size_t descriptors = 0;
  std::size_t mappings = 0;  ///< of shared memory
  std::size_t memory = 0;    ///< RSS, in KiB

  void include(const Holding& other) {
    descriptors = std::max(descriptors, other.descriptors);
    mappings = std::max(mappings, other.mappings);
    memory = std::max(memory, other.memory);
  }
};

Holding holding_of(pid_t pid) {
  Holding found;
  std::error_code ended;
  std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid), ended);
  for (; !ended && entries != std::filesystem::directory_iterator(); entries.increment(ended)) {
    ++found.descriptors;
  }
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    const auto rights = line.find(' ') + 1;
    found.mappings += line.size() > rights + 3 && line[rights + 3] == 's' ? 1 : 0;
  }
  std::ifstream pages(fmt::format("/proc/{}/statm", pid));
  std::size_t size = 0;
  std::size_t resident = 0;
  if (pages >> size >> resident) found.memory = resident * 4;
  return found;
}

class ElasticChurnTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string lacks = TwoHosts::missing();
    if (!lacks.empty()) GTEST_SKIP() << "needs " << lacks;
    hosts_.emplace();
    std::filesystem::copy_file(ELASTIC_LOOP, work() / "train");
  }
  [[nodiscard]] std::filesystem::path work() const { return hosts_->shared().path() / "work"; }

  void start() {
    job_.emplace(hosts_->on(
        "a", {HVDRUN, "--launcher", "ssh", "-H", "a:2,b:2", "-np", std::to_string(kRanks),
              "--min-np", "1", "--blacklist-cooldown-range", "0.02,0.02", "--verbose", "-x",
              "HVD_PEER_TIMEOUT_MS=500", "./train", "."}));
    started_ = kRanks;
    await_all();
    static_cast<void>(settle());
  }
  /// Waits until the newest worker trains in a generation of all ranks, and all others too.
  void await_all() {
    const std::string end = fmt::format(" ranks with worker {}\n", started_ - 1);
    job_->wait_for_out(std::to_string(kRanks) + end, test::in(kPatience));
    const std::string& out = job_->out();
    const auto begin = out.rfind("generation ", out.find(std::to_string(kRanks) + end));
    const std::string generation = out.substr(begin, out.find(':', begin) - begin);
    for (const auto& [worker, pid] : workers()) {
      job_->wait_for_out(fmt::format("{}: worker {} is ", generation, worker), test::in(kPatience));
    }
    const auto steps = std::stoull(out.substr(out.find("step ", begin) + 5));
    EXPECT_GE(steps, steps_) << "training has started anew";
    steps_ = steps;
  }
  /// Returns the pids of the workers that run, by their numbers.
  [[nodiscard]] std::map<int, pid_t> workers() const {
    std::map<int, pid_t> found;
    for (const char* host : {"a", "b"}) {
      for (const pid_t pid : hosts_->processes(host)) {
        if (name_of(pid) != "train") continue;
        const std::string number = "HVD_WORKER=";
        std::ifstream environment(fmt::format("/proc/{}/environ", pid));
        for (std::string variable; std::getline(environment, variable, '\0');) {
          if (variable.starts_with(number)) found[std::stoi(variable.substr(number.size()))] = pid;
        }
      }
    }
    return found;
  }
  std::size_t random(std::size_t below) { return random_() % below; }

  /// Waits until the processes are as many as at the start, and takes what they hold.
  std::map<std::string, Holding> settle() {
    const Deadline deadline = test::in(kPatience);
    std::vector<pid_t> all;
    while (true) {
      all.clear();
      for (const char* host : {"a", "b"}) {
        for (const pid_t pid : hosts_->processes(host)) all.push_back(pid);
      }
      if (processes_ == 0 || all.size() == processes_ || Clock::now() > deadline) break;
      ::usleep(1'000);  // nothing tells when a process of another namespace is over but looking
    }
    if (processes_ == 0) processes_ = all.size();
    EXPECT_EQ(all.size(), processes_) << hosts_->left();
    std::map<std::string, Holding> held;
    for (const pid_t pid : all) held[name_of(pid)].include(holding_of(pid));
    for (const char* host : {"a", "b"}) EXPECT_THAT(hosts_->shared_memory(host), IsEmpty());
    return held;
  }

  /// Ends one or more workers in some way; hvdrun starts as many. Returns how many they are.
  int disturb(int round) {
    const std::map<int, pid_t> all = workers();
    // The oldest stays for a while, so that there is one that has seen many generations.
    const std::size_t spared = round % kFirst == 0 ? 0 : 1;
    const auto victim =
        std::next(all.begin(), static_cast<int>(spared + random(all.size() - spared)));
    ::usleep(static_cast<unsigned>(random(20'000)));  // so that it is hit anywhere in a step
    switch (round % kFirst) {
      case 3: {  // together with another one
        const auto other = std::next(all.begin(), std::next(victim) == all.end() ? 1 : 3);
        ::kill(victim->second, SIGKILL);
        ::kill(other->second, SIGKILL);
        return 2;
      }
      case 5: {  // and so is the newcomer, while it joins
        ::kill(victim->second, SIGKILL);
        const Deadline deadline = test::in(kPatience);
        std::map<int, pid_t> now;
        while (!(now = workers()).contains(started_) && Clock::now() < deadline) ::usleep(1'000);
        ::usleep(static_cast<unsigned>(random(50'000)));
        ::kill(now.at(started_), SIGKILL);
        return 2;
      }
      case 7: {  // all of the other host with its agent
        const auto on_b = hosts_->processes("b");
        for (const pid_t pid : on_b) ::kill(pid, SIGKILL);
        return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const auto& worker) {
          return std::find(on_b.begin(), on_b.end(), worker.second) != on_b.end();
        }));
      }
      case 9:
        ::kill(victim->second, SIGSTOP);
        return 1;
      default:
        ::kill(victim->second, SIGKILL);
        return 1;
    }
  }

  std::optional<TwoHosts> hosts_;
  std::optional<test::Process> job_;
  std::mt19937 random_;  // NOLINT: the seed is set below
  std::size_t processes_ = 0;
  unsigned long long steps_ = 0;  ///< at the start of the last generation
  int started_ = 0;
};

TEST_F(ElasticChurnTest, NothingLeaksAndNoStepIsLostOrTakenTwice) {
  const char* const asked = std::getenv("HVD_CHURN_ROUNDS");
  const char* const seed = std::getenv("HVD_CHURN_SEED");
  const int rounds = asked != nullptr ? std::atoi(asked) : 20;
  random_.seed(seed != nullptr ? std::strtoul(seed, nullptr, 10) : std::random_device{}());
  start();
  // A worker that has just ended may still have some. hvdrun remembers each worker.
  constexpr std::size_t kDescriptorSlack = 8;
  constexpr std::size_t kMemorySlack = 4'096;  // KiB
  constexpr std::size_t kMemoryPerRound = 4;
  std::map<std::string, Holding> first;
  std::map<std::string, Holding> last;
  int lost = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    const int ended = disturb(round);
    started_ += ended;
    lost += ended;
    await_all();
    last = settle();
    if (round < kFirst) {
      for (const auto& [name, held] : last) first[name].include(held);
      continue;
    }
    for (const auto& [name, held] : last) {
      EXPECT_LE(held.descriptors, first[name].descriptors + kDescriptorSlack) << name;
      EXPECT_LE(held.mappings, first[name].mappings) << name;
      const std::size_t grown = kMemorySlack + kMemoryPerRound * static_cast<std::size_t>(round);
      EXPECT_LE(held.memory, first[name].memory + grown) << name;
    }
    if (HasFailure()) FAIL() << "after " << round << " rounds\n" << job_->err();
    if (asked == nullptr || (round + 1) % 100 != 0) continue;
    for (const auto& [name, held] : last) {
      fmt::print("round {}: {} holds {} descriptors, {} shared mappings, {} KiB\n", round + 1, name,
                 held.descriptors, held.mappings, held.memory);
    }
  }
  std::ofstream{work() / "stop"};
  const auto result = job_->wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.err, testing::Not(testing::HasSubstr("worker threw")));
  EXPECT_TRUE(hosts_->all_gone(test::in(kPatience))) << hosts_->left();
  if (asked != nullptr) fmt::print("{} rounds, {} workers lost and replaced\n", rounds, lost);
}

}  // namespace
}  // namespace hvd::launcher
