// The beginning and end of a LibTorch trainer, for launchers other than hvdrun; with "spawn", for
// hvd::spawn in a program in which LibTorch has started threads; with "leave", rank 1 exits 3 in
// the middle of training, and the other ranks abort without a word.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <hvd/spawn.hpp>
#include <hvd/torch.hpp>

namespace {

void train() {
  hvd::init();
  const torch::Tensor sum =
      hvd::allreduce(torch::full({4}, hvd::rank()), {.name = "sum", .op = hvd::ReduceOp::sum});
  std::printf("rank %d of %d sum %lld ready\n", hvd::rank(), hvd::size(),
              static_cast<long long>(sum[0].item<std::int64_t>()));
  std::fflush(stdout);
  hvd::shutdown();
}

[[noreturn]] void leave() {
  hvd::init();
  try {
    for (int step = 0;; ++step) {
      (void)hvd::allreduce(torch::ones({64}), {.name = "gradient"});
      if (step == 5 && hvd::rank() == 1) std::exit(3);
    }
  } catch (const hvd::Error&) {
    std::abort();
  }
}

/// Returns the sum over all ranks of one element of a gradient of 64 x 64 equal elements.
double gradient(int rank) {
  hvd::init();
  const torch::Tensor weight = torch::ones({64, 64}, torch::requires_grad());
  (torch::matmul(torch::ones({64, 64}), weight).sum() * (rank + 1)).backward();
  const torch::Tensor sum =
      hvd::allreduce(weight.grad(), {.name = "gradient", .op = hvd::ReduceOp::sum});
  hvd::shutdown();
  return sum[0][0].item<double>();
}

long count_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

void spawn() {
  torch::set_num_threads(4);
  const torch::Tensor large = torch::rand({512, 512});
  at::launch([] {});  // starts LibTorch's inter-op threads
  const long threads = torch::matmul(large, large).numel() > 0 ? count_threads() : 0;
  std::vector<double> gradients;
  {
    // These threads are busy while the processes are started. Ranks never reach the end of this
    // block.
    std::jthread busy;
    if (std::getenv("HVD_RANK") == nullptr) {
      busy = std::jthread([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) torch::matmul(large, large);
      });
    }
    gradients = hvd::spawn(gradient, 2);
  }
  std::printf("%s, gradients %g %g\n", threads >= 4 ? "several threads" : "one thread",
              gradients.at(0), gradients.at(1));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kLost = 3;
  if (argc > 1 && std::strcmp(argv[1], "leave") == 0) leave();
  try {
    if (argc > 1 && std::strcmp(argv[1], "spawn") == 0) {
      spawn();
    } else {
      train();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
  return 0;
}
