// Tests the backend of torch.distributed with tensors on a device, without Python.
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/torch.h>

#include "device/gate.hpp"
#include "device/torch_device.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "group_backend.hpp"

namespace hvd::test {
namespace {

using python::GroupBackend;
using Tensors = std::vector<at::Tensor>;

constexpr int kRanks = 2;
constexpr std::int64_t kElements = 6;

class DeviceBackend : public testing::Test {
 protected:
  ~DeviceBackend() override {
    device_.reset();
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
    fake_gpu::reset(4);
  }

  /// Runs `body` on one thread per rank, each with a device.
  static void on_ranks(const std::function<void(GroupBackend&, at::Device)>& body) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    expect_threads(kRanks, [&](int rank) {
      const auto backend = c10::make_intrusive<GroupBackend>(
          store, rank, kRanks, GroupBackend::Settings{"test", true, std::chrono::seconds(60)});
      body(*backend, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(rank)));
      backend->shutdown();
    });
  }

 private:
  std::optional<TorchDevice> device_{std::in_place};
};

/// Returns `first`, `first` + 1, …
at::Tensor counted(double first, at::Device device, std::int64_t elements = kElements) {
  return torch::arange(first, first + static_cast<double>(elements), torch::kFloat32).to(device);
}

void expect_equal(const at::Tensor& tensor, const std::vector<float>& values) {
  EXPECT_TRUE(tensor.is_cuda());
  EXPECT_TRUE(torch::equal(tensor.cpu().flatten(), torch::tensor(values))) << tensor.cpu();
}

TEST_F(DeviceBackend, Reduces) {
  on_ranks([](GroupBackend& backend, at::Device device) {
    const int rank = backend.getRank();
    Tensors sum{counted(rank, device)};
    backend.allreduce(sum, {})->wait();
    expect_equal(sum[0], {1, 3, 5, 7, 9, 11});

    Tensors mean{counted(rank, device).view({2, 3})};
    c10d::AllreduceOptions blocking;
    blocking.reduceOp = c10d::ReduceOp::AVG;
    blocking.asyncOp = false;
    const auto work = backend.allreduce(mean, blocking);
    if (work) work->wait();
    expect_equal(mean[0], {0.5, 1.5, 2.5, 3.5, 4.5, 5.5});

    Tensors bits{torch::full({kElements}, 1 << rank, torch::kInt32).to(device)};
    c10d::AllreduceOptions either;
    either.reduceOp = c10d::ReduceOp::BOR;
    backend.allreduce(bits, either)->wait();
    EXPECT_TRUE(torch::equal(bits[0].cpu(), torch::full({kElements}, 3, torch::kInt32)));

    Tensors at_root{counted(rank, device)};
    c10d::ReduceOptions to_one;
    to_one.rootRank = 1;
    backend.reduce(at_root, to_one)->wait();
    if (rank == 1) expect_equal(at_root[0], {1, 3, 5, 7, 9, 11});
    if (rank == 0) expect_equal(at_root[0], {0, 1, 2, 3, 4, 5});

    at::Tensor part = counted(0, device, kElements / 2);
    at::Tensor whole = counted(rank, device);
    backend._reduce_scatter_base(part, whole, {})->wait();
    expect_equal(part, rank == 0 ? std::vector<float>{1, 3, 5} : std::vector<float>{7, 9, 11});
  });
}

TEST_F(DeviceBackend, Moves) {
  on_ranks([](GroupBackend& backend, at::Device device) {
    const int rank = backend.getRank();
    const int other = 1 - rank;
    Tensors broadcast{counted(10 * rank, device)};
    c10d::BroadcastOptions from_one;
    from_one.rootRank = 1;
    backend.broadcast(broadcast, from_one)->wait();
    expect_equal(broadcast[0], {10, 11, 12, 13, 14, 15});

    Tensors mine{counted(10 * rank, device, 2)};
    std::vector<Tensors> all{{counted(0, device, 2), counted(0, device, 2)}};
    backend.allgather(all, mine, {})->wait();
    expect_equal(all[0][0], {0, 1});
    expect_equal(all[0][1], {10, 11});

    Tensors received{counted(0, device, 2), counted(0, device, 2)};
    Tensors sent{counted(10 * rank, device, 2), counted(10 * rank + 2, device, 2)};
    backend.alltoall(received, sent, {})->wait();
    expect_equal(received[0],
                 {2.0F * static_cast<float>(rank), 1 + 2.0F * static_cast<float>(rank)});
    expect_equal(received[1],
                 {10 + 2.0F * static_cast<float>(rank), 11 + 2.0F * static_cast<float>(rank)});

    Tensors message{counted(rank, device)};
    Tensors answer{counted(0, device)};
    const auto sending = backend.send(message, other, 0);
    backend.recv(answer, other, 0)->wait();
    sending->wait();
    expect_equal(answer[0], rank == 0 ? std::vector<float>{1, 2, 3, 4, 5, 6}
                                      : std::vector<float>{0, 1, 2, 3, 4, 5});
  });
}

TEST_F(DeviceBackend, ABarrierHasNoTensor) {
  on_ranks([](GroupBackend& backend, at::Device) { EXPECT_TRUE(backend.barrier({})->wait()); });
}

TEST_F(DeviceBackend, StreamsWaitInPlaceOfTheHost) {
  on_ranks([](GroupBackend& backend, at::Device device) {
    for (int i = 0; i < 20; ++i) {  // NCCL and the schedule need the host until they have begun
      Tensors warm_up{counted(0, device)};
      backend.allreduce(warm_up, {})->wait();
      warm_up[0].cpu();
    }
    Tensors tensors{counted(backend.getRank(), device)};
    const at::Tensor ones = torch::ones({kElements}).to(device);
    Gate gate(device);
    gate.stop();
    const int waits = count_of(Counted::host_waits, device.index());
    tensors[0].add_(ones);  // the collective has to wait for it
    const auto work = backend.allreduce(tensors, {});
    const auto future = work->getFuture();
    work->wait();
    future->wait();
    tensors[0].add_(ones);
    EXPECT_FALSE(work->isCompleted());
    EXPECT_EQ(count_of(Counted::host_waits, device.index()), waits);
    gate.open();
    expect_equal(tensors[0], {4, 6, 8, 10, 12, 14});
    EXPECT_TRUE(torch::equal(future->value().toTensorVector()[0].cpu(), tensors[0].cpu()));
  });
}

TEST_F(DeviceBackend, StreamsWaitForAReductionToOneRankOnEveryRank) {
  on_ranks([](GroupBackend& backend, at::Device device) {
    c10d::ReduceOptions to_one;
    to_one.rootRank = 1;
    for (int i = 0; i < 20; ++i) {  // NCCL and the schedule need the host until they have begun
      Tensors warm_up{counted(0, device)};
      backend.reduce(warm_up, to_one)->wait();
      warm_up[0].cpu();
    }
    const at::Tensor ones = torch::ones({kElements}).to(device);
    Tensors tensors{counted(backend.getRank(), device)};
    Gate gate(device);
    gate.stop();
    const int waits = count_of(Counted::host_waits, device.index());
    tensors[0].add_(ones);  // the collective has to wait for it
    const auto work = backend.reduce(tensors, to_one);
    auto waited = std::async(std::launch::async, [&] { work->wait(); });
    EXPECT_EQ(waited.wait_for(std::chrono::seconds(20)), std::future_status::ready)
        << "rank " << backend.getRank() << " waits for the device";
    tensors[0].add_(ones);
    EXPECT_FALSE(work->isCompleted());
    EXPECT_EQ(count_of(Counted::host_waits, device.index()), waits);
    gate.open();
    expect_equal(tensors[0], backend.getRank() == 1 ? std::vector<float>{4, 6, 8, 10, 12, 14}
                                                    : std::vector<float>{2, 3, 4, 5, 6, 7});
  });
}

TEST_F(DeviceBackend, CallbacksOfAFutureSeeTheResult) {
  on_ranks([](GroupBackend& backend, at::Device device) {
    Tensors tensors{counted(backend.getRank(), device)};
    const auto half = backend.allreduce(tensors, {})
                          ->getFuture()
                          ->then(
                              [device](c10::ivalue::Future& future) {
                                at::Tensor sum = future.value().toTensorVector()[0];
                                sum.add_(torch::ones({kElements}).to(device));
                                return c10::IValue(sum);
                              },
                              c10::TensorType::get());
    half->wait();
    expect_equal(half->value().toTensor(), {2, 4, 6, 8, 10, 12});
  });
}

}  // namespace
}  // namespace hvd::test
