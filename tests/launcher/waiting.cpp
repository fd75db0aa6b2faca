// Ranks that wait for rank 1: all others sum at once, and rank 1 only when another process has
// opened the fifo in the argument. Then all take some steps.
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  try {
    hvd::init();
    hvd::Context& context = hvd::context();
    std::printf("joined\n");
    std::fflush(stdout);
    if (context.rank() == 1) {
      std::ifstream fifo(argv[1]);
      std::string line;
      std::getline(fifo, line);
    }
    std::vector<float> data(100, 1.0F);
    hvd::allreduce(std::span(data), {.name = "late", .context = &context});
    hvd::shutdown();
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
