// A loop that ends when its job is asked to stop. It prints "ready" after some steps, and the step
// in which it ended. Its argument is what else:
//   uneven         rank 0 has less data than the others, and all join after each epoch
//   request        rank 1 asks itself
//   slow           saves for 3 s
//   own            rank 1 handles SIGTERM itself, and asks with the library
//   never          never calls stop_requested, and so makes steps until it is killed
#include <chrono>
#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <hvd/hvd.hpp>

namespace {

constexpr int kReady = 30;

class Loop {
 public:
  explicit Loop(bool requests) : requests_(requests) {}

  void step() {
    std::vector<float> data(100, 1.0F);
    hvd::allreduce(std::span(data), {.name = "data"});
    ++steps;
    if (steps != kReady) return;
    std::printf("pid %d ready\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
    if (requests_) hvd::request_stop();
  }

  int steps = 0;

 private:
  bool requests_;
};

void run_epochs(Loop& loop) {
  const int batches = hvd::rank() == 0 ? 3 : 7;
  while (!hvd::stop_requested()) {
    for (int batch = 0; batch < batches && !hvd::stop_requested(); ++batch) loop.step();
    hvd::join();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    hvd::init();
    if (what == "own" && hvd::rank() == 1) {
      std::signal(SIGTERM, [](int) { hvd::request_stop(); });
    }
    Loop loop(what == "request" && hvd::rank() == 1);
    if (what == "uneven") {
      run_epochs(loop);
    } else {
      while (what == "never" || !hvd::stop_requested()) loop.step();
    }
    if (what == "slow") std::this_thread::sleep_for(std::chrono::seconds(3));
    std::printf("stopped after %d\n", loop.steps);
    hvd::shutdown();
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
