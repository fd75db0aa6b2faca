#include "scenario.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "policy/negotiator.hpp"

namespace hvd::explore {
namespace {

constexpr std::int32_t kSet = 1;  // the first process set that a program makes
constexpr std::string_view kPrograms[] = {"freeze", "thaw", "join", "process_set", "shutdown"};
constexpr std::string_view kFaults[] = {"crash", "pause", "cut", "pairs"};
constexpr std::string_view kElasticJobs[] = {"elastic", "mirrored"};
constexpr std::string_view kElasticFaults[] = {"crash", "pause", "leave", "hosts", "pairs"};

Request allreduce(const std::string& name, std::int64_t elements, std::int32_t set = 0) {
  Request request;
  request.name = name;
  request.shape = {elements};
  request.process_set = set;
  return request;
}

class Author {
 public:
  explicit Author(int rank) : rank_(rank) {}

  void submit(Request request) {
    steps.push_back({ScenarioStep::Kind::submit, std::move(request), -1});
  }
  void wait() { steps.push_back({ScenarioStep::Kind::wait_all, {}, -1}); }
  /// Every rank has its own order.
  void submit_both(std::int64_t a, std::int64_t b) {
    if (rank_ % 2 == 0) {
      submit(allreduce("a", a));
      submit(allreduce("b", b));
    } else {
      submit(allreduce("b", b));
      submit(allreduce("a", a));
    }
  }
  void train(int steps_of_training) {
    for (int i = 0; i < steps_of_training; ++i) {
      submit_both(4, 8);
      wait();
    }
  }
  void control(OpKind kind, const std::string& name, Shape shape, bool over_contributors = false) {
    Request request;
    request.name = name;
    request.kind = kind;
    request.shape = std::move(shape);
    request.over_contributors = over_contributors;
    submit(std::move(request));
    wait();
  }

  std::vector<ScenarioStep> steps;

 private:
  int rank_;
};

void write_program(Author& author, std::string_view program, int rank, int ranks) {
  const bool last = rank == ranks - 1;
  if (program == "freeze") {
    author.train(4);
  } else if (program == "thaw") {
    author.train(3);
    author.submit_both(last ? 5 : 4, 16);  // 'b' changes everywhere, 'a' on one rank only
    author.wait();
  } else if (program == "join") {
    author.train(last ? 4 : 3);
    author.control(OpKind::join, std::string(detail::kJoinName), {}, true);
    author.train(1);
  } else if (program == "process_set") {
    author.control(OpKind::add_process_set, "add", {ranks - 2, ranks - 1});
    for (int i = 0; i < 3; ++i) {
      author.submit(allreduce("a", 4));
      if (rank >= ranks - 2) author.submit(allreduce("b", 8, kSet));
      author.wait();
    }
    author.control(OpKind::remove_process_set, "remove", {kSet});
    author.submit(allreduce("a", 4));
    author.wait();
  } else {
    author.train(last ? 2 : 3);
    if (last) author.submit_both(4, 8);
  }
}

/// Finds which operations mean the same, and what must become of them.
void find_meanings(Scenario& scenario) {
  std::map<std::tuple<std::int32_t, std::string, int, int>, int> known;
  std::vector<std::vector<bool>> joined;  // by era, by rank
  std::vector<int> eras;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    std::size_t era = 0;
    std::map<std::pair<std::int32_t, std::string>, int> counts;
    auto& program = scenario.programs[static_cast<std::size_t>(rank)];
    for (std::size_t index = 0; index < program.size(); ++index) {
      ScenarioStep& step = program[index];
      if (step.kind != ScenarioStep::Kind::submit) continue;
      const Request& request = step.request;
      const int number = counts[{request.process_set, request.name}]++;
      const auto [at, is_new] =
          known.try_emplace({request.process_set, request.name, static_cast<int>(era), number},
                            static_cast<int>(scenario.meanings.size()));
      if (is_new) {
        Meaning meaning;
        meaning.name = request.name;
        meaning.steps.assign(static_cast<std::size_t>(scenario.ranks), -1);
        meaning.stand_in.assign(static_cast<std::size_t>(scenario.ranks), false);
        for (int member = 0; member < scenario.ranks; ++member) {
          if (request.process_set == 0 || member >= scenario.ranks - 2) {
            meaning.members.push_back(member);
          }
        }
        scenario.meanings.push_back(std::move(meaning));
        eras.push_back(static_cast<int>(era));
      }
      step.meaning = at->second;
      scenario.meanings[static_cast<std::size_t>(at->second)]
          .steps[static_cast<std::size_t>(rank)] = static_cast<int>(index);
      if (request.kind != OpKind::join) continue;
      joined.resize(std::max(joined.size(), era + 1));
      joined[era].resize(static_cast<std::size_t>(scenario.ranks));
      joined[era][static_cast<std::size_t>(rank)] = true;
      ++era;
      counts.clear();
    }
  }
  for (std::size_t i = 0; i < scenario.meanings.size(); ++i) {
    Meaning& meaning = scenario.meanings[i];
    const Request* first = nullptr;
    const auto era = static_cast<std::size_t>(eras[i]);
    for (const int member : meaning.members) {
      const auto rank = static_cast<std::size_t>(member);
      if (meaning.steps[rank] < 0) {
        meaning.stand_in[rank] = era < joined.size() && joined[era][rank];
        if (!meaning.stand_in[rank]) meaning.error = Errc::shut_down;
        continue;
      }
      const Request& request =
          scenario.programs[rank][static_cast<std::size_t>(meaning.steps[rank])].request;
      if (first && *first != request) meaning.error = Errc::mismatch;
      first = first ? first : &request;
    }
  }
}

}  // namespace

std::vector<std::string> configurations() {
  std::vector<std::string> all;
  const auto add = [&all](const auto& programs, const auto& faults) {
    for (const std::string_view program : programs) {
      all.emplace_back(program);
      for (const std::string_view fault : faults) {
        all.push_back(std::string(program) + "+" + std::string(fault));
      }
    }
  };
  add(kPrograms, kFaults);
  add(kElasticJobs, kElasticFaults);
  return all;
}

std::optional<Scenario> make_scenario(std::string_view configuration, int ranks) {
  const std::vector<std::string> all = configurations();
  if (ranks < 2 || ranks > kMostRanks ||
      std::find(all.begin(), all.end(), configuration) == all.end()) {
    return std::nullopt;
  }
  const std::size_t plus = configuration.find('+');
  const std::string_view program = configuration.substr(0, plus);
  const std::string_view fault =
      plus == std::string_view::npos ? "" : configuration.substr(plus + 1);
  Scenario scenario;
  scenario.name = configuration;
  scenario.ranks = ranks;
  const bool pairs = fault == "pairs";
  scenario.faults = fault.empty() ? 0 : pairs ? 2 : 1;
  scenario.crash = pairs || fault == "crash";
  scenario.pause = pairs || fault == "pause";
  scenario.cut = pairs || fault == "cut";
  scenario.elastic = program == "elastic" || program == "mirrored";
  if (scenario.elastic) {
    scenario.mirrored = program == "mirrored";
    scenario.leave = pairs || fault == "leave";
    scenario.host_loss = pairs || fault == "hosts";
    scenario.slot_added = scenario.host_loss || fault.empty();
    scenario.faults = pairs ? 2 : 1;
    return scenario;
  }
  scenario.over_contributors = program == "join";
  scenario.early_shutdown = program == "shutdown";
  for (int rank = 0; rank < ranks; ++rank) {
    Author author(rank);
    write_program(author, program, rank, ranks);
    scenario.programs.push_back(std::move(author.steps));
  }
  find_meanings(scenario);
  return scenario;
}

}  // namespace hvd::explore
