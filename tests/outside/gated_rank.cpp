// A rank of tests/outside/silent_end.py: waits at a gate before it shuts down. Its arguments are
// those of rank.cpp: the first one is the name of the gates, two FIFOs, one for rank 0 and one for
// the others; the last one is the FIFO to which it writes how far it is.
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <hvd/hvd.hpp>

namespace {

constexpr int kLost = 3;

void say(int fifo, const std::string& text) {
  const std::string line = std::to_string(hvd::rank()) + " " + text + "\n";
  if (::write(fifo, line.data(), line.size()) < 0) std::perror("FIFO");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int fifo = ::open(argv[3], O_WRONLY | O_CLOEXEC);
  try {
    hvd::init();
    const std::string name = argv[1] + std::string(hvd::rank() == 0 ? ".0" : ".others");
    const int gate = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    say(fifo, "ready");
    char token = 0;
    if (::read(gate, &token, 1) != 1) return 2;
    say(fifo, "leaves");
    hvd::shutdown();
    return 0;
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
}
