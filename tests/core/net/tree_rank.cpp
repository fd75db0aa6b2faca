// A rank that sums until another rank is lost. It prints when its schedule is frozen, and then
// which rank its error names.
#include <cstdio>
#include <span>
#include <vector>

#include <unistd.h>

#include <hvd/hvd.hpp>

int main() {
  try {
    hvd::init();
    hvd::Context& context = hvd::context();
    std::vector<float> loss(100);
    const auto frozen = [&] { return context.stats().schedule_hits >= 20; };
    for (bool printed = false;;) {
      hvd::allreduce(std::span(loss),
                     {.name = "loss", .op = hvd::ReduceOp::sum, .context = &context});
      if (printed || !frozen()) continue;
      printed = true;
      std::printf("ready\n");
      std::fflush(stdout);
    }
  } catch (const hvd::Error& error) {
    std::printf("lost %d code %d: %s\n", error.fault().rank, static_cast<int>(error.code()),
                error.what());
    std::fflush(stdout);
    ::_exit(3);
  }
}
