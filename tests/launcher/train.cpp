// A program of the library for runs over several hosts. "train" sums once and says where it is;
// "train loop" sums until it is ended, and exits 3 when the library reports an error.
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include <hvd/hvd.hpp>

namespace {

constexpr int kLost = 3;

float sum_of_ranks(hvd::Context& context) {
  std::vector<float> data(1000, static_cast<float>(context.rank()));
  hvd::allreduce(context, std::span(data), {"data", hvd::ReduceOp::sum, 1, 1, 0});
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

}  // namespace

int main(int argc, char** argv) {
  const bool loop = argc > 1 && std::strcmp(argv[1], "loop") == 0;
  try {
    hvd::init();
    hvd::Context& context = hvd::context();
    say(context, sum_of_ranks(context));
    while (loop) sum_of_ranks(context);
    hvd::shutdown();
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
  return 0;
}
