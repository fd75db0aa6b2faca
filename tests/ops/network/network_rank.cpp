// A rank of the tests over networks.
//   network_rank [--serve ADDRESS] COUNT REPEATS [wait|RANKS...]
// Sums COUNT floats REPEATS times, in place, and checks the results. With `wait` it
// goes on until something fails. Each of RANKS is a process set, like 0,2,3: the sums are made in
// those that this rank is in, and not by all. Prints "ready" before the sums, then "ok SENT
// RECEIVED", the bytes that its host's link carried meanwhile, or "error CODE: WHAT". Exit status 0
// for both, 1 for a wrong result.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

namespace {

long carried(const char* direction) {
  std::ifstream file(std::string("/sys/class/net/hvd0/statistics/") + direction + "_bytes");
  long bytes = 0;
  file >> bytes;
  return bytes;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void fill(std::vector<float>& data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 251);
  }
}

bool right(const std::vector<float>& data, const std::vector<int>& ranks) {
  float sum = 0;
  for (const int rank : ranks) sum += static_cast<float>(rank + 1);
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] != sum + static_cast<float>(ranks.size() * (i % 251))) return false;
  }
  return true;
}

std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  std::istringstream list(text);
  for (std::string rank; std::getline(list, rank, ',');) ranks.push_back(std::stoi(rank));
  return ranks;
}

/// The sets that this rank adds up in.
std::vector<hvd::ProcessSet> sets_of(hvd::Context& context, std::span<const std::string> texts) {
  if (texts.empty()) return {hvd::ProcessSet()};
  std::vector<hvd::ProcessSet> own;
  for (const std::string& text : texts) {
    const hvd::ProcessSet set = context.add_process_set(ranks_in(text));
    if (std::count(set.ranks.begin(), set.ranks.end(), context.rank()) > 0) own.push_back(set);
  }
  return own;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::size_t first = arguments.front() == "--serve" ? 2 : 0;
  const auto count = std::strtoul(arguments[first].c_str(), nullptr, 10);
  const long repeats = std::strtol(arguments[first + 1].c_str(), nullptr, 10);
  const auto rest = std::span(arguments).subspan(first + 2);
  const bool until_failure = !rest.empty() && rest.front() == "wait";
  try {
    const hvd::Config config = hvd::Config::from_environment();
    hvd::EventLoop loop;
    std::optional<hvd::StoreServer> server;
    if (first > 0) {
      server.emplace(loop, arguments[1],
                     hvd::Identity{.job_id = config.job_id,
                                   .epoch = 0,
                                   .rank = -1,
                                   .secret = hvd::Secret::from_file(config.secret_file)});
    }
    const auto context = hvd::make_context(config);
    std::vector<float> data(count);
    const auto sets = sets_of(*context, until_failure ? rest.subspan(1) : rest);
    hvd::barrier(*context);
    say("ready");
    const long sent = carried("tx");
    const long received = carried("rx");
    for (long i = 0; i < repeats || until_failure; ++i) {
      for (const hvd::ProcessSet& set : sets) {
        fill(data, context->rank());
        hvd::allreduce(*context, std::span<float>(data),
                       {.name = "sum", .op = hvd::ReduceOp::sum, .process_set = set.id});
        if (!right(data, context->ranks_of(set.id))) {
          say("wrong");
          return 1;
        }
      }
    }
    hvd::barrier(*context);
    say("ok " + std::to_string(carried("tx") - sent) + " " +
        std::to_string(carried("rx") - received));
    context->shutdown();
  } catch (const hvd::Error& error) {
    say("error " + std::string(to_string(error.code())) + ": " + error.what());
  }
  return 0;
}
