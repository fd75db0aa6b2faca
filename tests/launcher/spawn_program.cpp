// A program that uses hvd::spawn and links only hvd::spawn and core. The first argument selects its
// task.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <hvd/core/config.hpp>
#include <hvd/core/context.hpp>
#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/spawn.hpp>

namespace {

using std::chrono::milliseconds;

/// Sleeps until a signal arrives.
void sleep_for_ever() {
  for (;;) ::pause();
}

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "-" : value;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// Prints an error in the form that the tests read.
void say(const hvd::ProcessError& error) {
  say("rank " + std::to_string(error.rank()) + " code " + std::to_string(error.exit_code()) +
      " signal " + std::to_string(error.signal()) + " text [" + error.text() + "] what " +
      error.what());
}

int results() {
  struct Pair {
    int rank;
    double half;
  };
  const double scale = 0.5;  // captured by fn and recomputed in the child
  const auto pairs = hvd::spawn([&](int rank) { return Pair{rank, rank * scale}; }, 3);
  const auto texts = hvd::spawn([](int rank) { return std::string(rank * 100'000, 'x'); }, 2);
  const auto blobs = hvd::spawn([](int rank) { return hvd::Bytes(3, std::byte(rank)); }, 2);
  hvd::spawn([](int) {}, 2);
  // Only the parent comes here, after the last call.
  for (const Pair& pair : pairs) {
    say(std::to_string(pair.rank) + " " + std::to_string(pair.half));
  }
  say("sizes " + std::to_string(texts[0].size()) + " " + std::to_string(texts[1].size()));
  say("bytes " + std::to_string(std::to_integer<int>(blobs.at(1).at(2))));
  return 0;
}

int failing(const std::string& how) {
  try {
    hvd::spawn(
        [&](int rank) {
          if (rank != 2) sleep_for_ever();
          if (how == "throws") throw std::runtime_error("no such file");
          if (how == "throws_int") throw 7;
          if (how == "killed") ::raise(SIGKILL);
          if (how == "exits") std::exit(3);
          if (how == "exits_zero") std::exit(0);
          sleep_for_ever();
        },
        4, {.timeout = how == "sleeps" ? milliseconds(300) : milliseconds(0)});
  } catch (const hvd::ProcessError& error) {
    say(error);
    return 5;
  } catch (const hvd::Error& error) {
    say(std::string(hvd::to_string(error.code())) + " " + error.what());
    return 6;
  }
  return 0;
}

/// Makes calls at several places, one in a loop and one that fails, and checks which earlier
/// results the children of later calls see.
int several() {
  int sum = 0;
  for (int round = 0; round < 2; ++round) {
    for (const int result : hvd::spawn([&](int rank) { return 10 * round + rank; }, 2)) {
      sum += result;
    }
  }
  std::string error = "none";
  try {
    hvd::spawn(
        [](int rank) {
          if (rank == 1) throw std::logic_error("planned");
        },
        2);
  } catch (const hvd::ProcessError& failed) {
    error = failed.text();
  }
  const auto last = hvd::spawn(
      [&](int rank) { return std::to_string(rank) + ":" + std::to_string(sum) + ":" + error; }, 2);
  say(last[0] + " " + last[1]);
  return 0;
}

/// Each of two processes starts two of its own.
int nested() {
  const auto outer = hvd::spawn(
      [](int rank) {
        std::string all;
        for (const int inner : hvd::spawn([&](int in) { return 10 * rank + in; }, 2)) {
          all += std::to_string(inner) + ",";
        }
        return all;
      },
      2);
  say(outer[0] + " " + outer[1]);
  return 0;
}

int handle() {
  auto running = hvd::spawn_async([](int rank) { return rank + 1; }, 2);
  std::string text = "pids " + std::to_string(running.pids().size());
  const auto results = running.join();
  text += " joined " + std::to_string(results[0] + results[1]);
  auto sleeping = hvd::spawn_async([](int) { sleep_for_ever(); }, 2);
  text += sleeping.wait_until(hvd::Clock::now()) ? " over" : " running";
  sleeping.terminate();
  try {
    sleeping.join();
  } catch (const hvd::Error& error) {
    text += std::string(" ") + error.what();
  }
  auto polled = hvd::spawn_async([](int rank) { return rank + 1; }, 2);
  while (!polled.wait_until(hvd::Clock::now() + std::chrono::milliseconds(10))) continue;
  // Its processes run the loop too.
  auto later = hvd::spawn_async([](int rank) { return rank + 10; }, 2);
  text += " polled " + std::to_string(polled.join()[1]) + " " + std::to_string(later.join()[1]);
  auto dropped = hvd::spawn_async([](int) { sleep_for_ever(); }, 2);  // ended by its destructor
  say(text);
  return 0;
}

/// Prints the environment of a rank and runs a collective.
std::string meet(int rank) {
  auto session = std::make_unique<hvd::Session>(hvd::Config::from_environment());
  const std::string text = std::to_string(rank) + "=" + std::to_string(session->config().rank) +
                           "/" + std::to_string(session->config().size) + " local " +
                           text_of("HVD_LOCAL_RANK") + "/" + text_of("HVD_LOCAL_SIZE") + " of " +
                           std::to_string(session->network().hosts().size());
  hvd::Context context(std::move(session), {});
  context.shutdown();  // waits until all ranks have run the collective
  return text;
}

int rendezvous(int argc, char** argv) {
  for (const std::string& line : hvd::spawn(meet, 2, hvd::node_options(argc, argv))) say(line);
  return 0;
}

/// Rank 1 leaves the job, and exits 3 when rank 0 has ended because of that, which held the fifo.
int leaves(const char* fifo) {
  try {
    hvd::spawn(
        [&](int rank) {
          hvd::Context context(std::make_unique<hvd::Session>(hvd::Config::from_environment()), {});
          const int held = ::open(fifo, rank == 0 ? O_WRONLY : O_RDONLY);
          if (rank == 0) context.shutdown();
          context.disconnect();
          char byte = 0;
          while (::read(held, &byte, 1) > 0) {
          }
          std::exit(3);
        },
        2);
  } catch (const hvd::ProcessError& error) {
    say(error);
  }
  return 0;
}

/// The parent is about to be killed.
int orphans() {
  hvd::spawn(
      [](int rank) {
        say("child " + std::to_string(rank));
        sleep_for_ever();
      },
      2);
  return 0;
}

/// Keeps threads busy that hold locks while the children are started, as LibTorch's do.
int threads() {
  std::vector<std::jthread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::free(std::malloc(1'000));
    });
  }
  for (int round = 0; round < 5; ++round) {
    const auto ranks = hvd::spawn([](int rank) { return rank; }, 4);
    if (ranks != std::vector<int>{0, 1, 2, 3}) return 1;
  }
  say("done");
  return 0;
}

/// main takes another path in the child than in the parent.
int astray() {
  try {
    if (text_of("HVD_RANK") == "-") {
      hvd::spawn([](int) {}, 1);
    } else {
      hvd::spawn([](int) {}, 1);
    }
  } catch (const hvd::ProcessError& error) {
    say(error);
  }
  try {
    if (text_of("HVD_RANK") == "-") hvd::spawn([](int) {}, 1);
  } catch (const hvd::ProcessError& error) {
    say(error);
  }
  return 0;
}

int invalid() {
  for (const int nprocs : {0, -1}) {
    try {
      hvd::spawn([](int) {}, nprocs);
    } catch (const hvd::Error& error) {
      say(std::string(hvd::to_string(error.code())) + " " + error.what());
    }
  }
  return 0;
}

/// The output of the processes goes to functions; the output of this process does not.
int output() {
  std::string out;
  std::string err;
  // Before the call, spawn_is_ahead() must be true in a child and false in the parent.
  if (hvd::spawn_is_ahead() != (std::getenv("HVD_RANK") != nullptr)) return 1;
  hvd::SpawnOptions options;
  options.output = [&out](std::string_view lines) { out += lines; };
  options.error = [&err](std::string_view lines) { err += lines; };
  hvd::spawn(
      [&](int rank) {
        say(std::string(rank == 1 ? 300'000 : 3, 'x'));
        std::fprintf(stderr, "unfinished");
      },
      2, options);
  const auto long_line = "[1]<stdout>:" + std::string(300'000, 'x') + "\n";
  say(std::string("out ") + (out.find("[0]<stdout>:xxx\n") != std::string::npos ? "0" : "-") +
      (out.find(std::string(1000, 'x')) != std::string::npos ? "1" : "-") + " size " +
      (out.size() > long_line.size() ? "whole" : "cut"));
  say("err " + std::to_string(err.find("[0]<stderr>:unfinished") != std::string::npos) +
      std::to_string(err.find("[1]<stderr>:unfinished") != std::string::npos));
  say(std::string("ahead ") + (hvd::spawn_is_ahead() ? "yes" : "no"));
  options.output = [](std::string_view) { throw std::runtime_error("not taken"); };
  hvd::spawn([](int) { say("a line"); }, 2, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "results") return results();
  if (what == "several") return several();
  if (what == "nested") return nested();
  if (what == "handle") return handle();
  if (what == "rendezvous") return rendezvous(argc, argv);
  if (what == "leaves") return leaves(argv[2]);
  if (what == "orphans") return orphans();
  if (what == "threads") return threads();
  if (what == "astray") return astray();
  if (what == "invalid") return invalid();
  if (what == "output") return output();
  return failing(what);
}
