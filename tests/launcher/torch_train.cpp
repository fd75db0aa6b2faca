// A trainer's first and last lines with LibTorch, for launchers that are not hvdrun.
#include <cstdio>

#include <torch/torch.h>

#include <hvd/torch.hpp>

int main() {
  constexpr int kLost = 3;
  try {
    hvd::init();
    const torch::Tensor sum =
        hvd::allreduce(torch::full({4}, hvd::rank()), {.name = "sum", .op = hvd::ReduceOp::sum});
    std::printf("rank %d of %d sum %lld ready\n", hvd::rank(), hvd::size(),
                static_cast<long long>(sum[0].item<std::int64_t>()));
    std::fflush(stdout);
    hvd::shutdown();
  } catch (const hvd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
  return 0;
}
