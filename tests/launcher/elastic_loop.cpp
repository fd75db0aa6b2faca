// A worker of an elastic job that trains until the file `stop` is in the directory of its argument.
// A worker for which there is a file `die.N` is killed before it joins.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <hvd/elastic.hpp>

namespace {

struct State final : hvd::ElasticStateBase {
  void commit() override {}
  void restore() override {}
  void synchronize(hvd::Context&) override {}
};

void train(const std::filesystem::path& directory, const char* worker) {
  std::printf("generation %u: worker %s is rank %d of %d, pid %d\n", hvd::elastic::generation(),
              worker, hvd::rank(), hvd::size(), ::getpid());
  std::fflush(stdout);
  for (;;) {
    std::vector<float> sums{1.0F, std::filesystem::exists(directory / "stop") ? 1.0F : 0.0F};
    hvd::allreduce(std::span(sums), {.name = "sums", .op = hvd::ReduceOp::sum});
    if (sums[0] != static_cast<float>(hvd::size())) std::abort();
    if (sums[1] > 0.0F) return;
    hvd::elastic::check_host_updates();
    // A step of a trainer takes longer too.
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

}  // namespace

int main(int, char** argv) {
  const std::filesystem::path directory = argv[1];
  const char* const worker = std::getenv("HVD_WORKER");
  if (std::filesystem::exists(directory / (std::string("die.") + worker))) ::raise(SIGKILL);
  State state;
  const bool finished = hvd::elastic_run(state, [&] { train(directory, worker); });
  std::printf("worker %s %s\n", worker, finished ? "has finished" : "leaves");
  return 0;
}
