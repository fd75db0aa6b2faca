// A rank of tests/outside/silent_end.py: waits at a gate before it shuts down, and at another one
// before it ends. Its arguments are those of rank.cpp: the first one is the name of the gates,
// three FIFOs, one for rank 0, one for the others and one for the end; the last one is the FIFO to
// which it writes how far it is.
#include <cstdio>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/hvd.hpp>

namespace {

constexpr int kLost = 3;

/// Returns once the test has opened the gate for one more rank.
void wait_at(const std::string& gate) {
  const hvd::UniqueFd fifo(::open(gate.c_str(), O_RDONLY | O_CLOEXEC));
  char token = 0;
  if (::read(fifo.get(), &token, 1) != 1) throw hvd::Error(hvd::Errc::resource, gate);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
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
    wait_at(gates + (rank == 0 ? ".0" : ".others"));
    say("leaves");
    hvd::shutdown();
    say("has left");
    wait_at(gates + ".end");
    return 0;
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
}
