// A rank of tests/outside/silent_end.py: waits at a gate before it shuts down or aborts the job,
// and at another one before it ends. Its arguments are those of rank.cpp: the first one is the name
// of the gates, FIFOs of which each rank has one, and one more for the end; the last one is the
// FIFO to which it writes how far it is.
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <hvd/hvd.hpp>

namespace {

constexpr int kLost = 3;
// What a rank is to do at its gate.
constexpr char kShutDown = 0;
constexpr char kAbort = 1;
constexpr char kAbortAndEnd = 2;

/// Waits until the test lets this rank through the gate, and returns what the rank is to do.
char wait_at(const std::string& gate) {
  const int fifo = ::open(gate.c_str(), O_RDONLY | O_CLOEXEC);
  char order = 0;
  const bool is_there = ::read(fifo, &order, 1) == 1;
  ::close(fifo);
  if (!is_there) throw hvd::Error(hvd::Errc::resource, gate);
  return order;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int fifo = ::open(argv[3], O_WRONLY | O_CLOEXEC);
  try {
    hvd::init();
    const int rank = hvd::rank();
    const auto say = [fifo, rank](const std::string& text) {
      const std::string line = std::to_string(rank) + " " + text + "\n";
      if (::write(fifo, line.data(), line.size()) < 0) std::perror("FIFO");
    };
    const std::string gates = argv[1];
    say("ready");
    const char order = wait_at(gates + "." + std::to_string(rank));
    say(order == kShutDown ? "leaves" : "aborts");
    if (order != kShutDown) hvd::context().abort("the test asks for it");
    if (order == kAbortAndEnd) return 0;
    try {
      hvd::shutdown();
      say("has left");
    } catch (const hvd::Error& error) {
      say("has lost " + std::to_string(error.fault().rank) + ": " +
          std::string(to_string(error.code())));
    }
    wait_at(gates + ".end");
    return 0;
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
}
