// A program of the library for runs over several hosts: sums once and says where it is; exits 3
// when the library reports an error. Its argument is what else:
//   loop         sums until it is ended
//   until FILE   sums until rank 0 finds the file
//   slow FILE    does the same, but rank 1 computes for 20 ms in each step
//   desert       sums until it is ended, but for rank 1, which ends without a shutdown
//   forget FIFO  ends without a shutdown, rank 0 when rank 1 is over, which held the fifo
//   leave FIFO   rank 1 exits 3, but its process is over only after that of rank 0, which held the
//                fifo and aborts without a word when it has lost rank 1
//   alone        passes the library settings of its own: one process
//   over LIST    sets HVD_NETWORK_INTERFACES itself
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <hvd/hvd.hpp>

namespace {

constexpr int kLost = 3;

/// Is destroyed at the end of the process, after the library has left the job. In rank 1 it then
/// waits until no process holds the fifo open for writing.
struct SlowEnd {
  int fifo = -1;
  ~SlowEnd() {
    char byte = 0;
    while (fifo >= 0 && ::read(fifo, &byte, 1) > 0) {
    }
  }
} slow_end;

/// Returns on all ranks whether rank 0 has found the file.
bool found(hvd::Context& context, const char* file) {
  const bool here = context.rank() == 0 && ::access(file, F_OK) == 0;
  std::vector<float> data(1, here ? 1.0F : 0.0F);
  hvd::allreduce(std::span(data), {.name = "found", .op = hvd::ReduceOp::sum, .context = &context});
  return data.front() > 0;
}

float sum_of_ranks(hvd::Context& context) {
  std::vector<float> data(1000, static_cast<float>(context.rank()));
  hvd::allreduce(std::span(data), {.name = "data", .op = hvd::ReduceOp::sum, .context = &context});
  return data.front();
}

void say(const hvd::Context& context, float sum) {
  const auto& topology = context.topology();
  std::printf(
      "rank %d of %d on %s local %d/%d cross %d/%d sum %g ready\n", context.rank(), context.size(),
      topology.hostnames.at(static_cast<std::size_t>(context.rank())).c_str(), topology.local_rank,
      topology.local_size, topology.cross_rank, topology.cross_size, static_cast<double>(sum));
  std::fflush(stdout);
}

int wait_for_rank_1(int rank, const char* fifo) {
  if (rank == 1) return ::open(fifo, O_WRONLY) >= 0 ? 0 : 1;  // stays open until the process ends
  std::ifstream held(fifo);
  std::string line;
  std::getline(held, line);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const char* const value = argc > 2 ? argv[2] : "";
  try {
    if (what == "over") ::setenv("HVD_NETWORK_INTERFACES", value, 1);
    if (what == "alone") {
      hvd::init(hvd::Config{});
    } else {
      hvd::init();
    }
    hvd::Context& context = hvd::context();
    say(context, sum_of_ranks(context));
    if (what == "forget") return wait_for_rank_1(context.rank(), value);
    if (what == "leave") {
      const int fifo = ::open(value, context.rank() == 1 ? O_RDONLY : O_WRONLY);
      if (fifo < 0) return 1;
      if (context.rank() == 1) {
        slow_end.fifo = fifo;
        std::exit(3);
      }
    }
    if (what == "desert" && context.rank() == 1) return 0;
    while (what == "until" && !found(context, value)) sum_of_ranks(context);
    while (what == "slow" && !found(context, value)) {
      if (context.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{20});
      sum_of_ranks(context);
      hvd::step_done();
    }
    while (what == "loop" || what == "desert" || what == "leave") sum_of_ranks(context);
    hvd::shutdown();
  } catch (const hvd::Error& error) {
    if (what == "leave") std::abort();
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
  return 0;
}
