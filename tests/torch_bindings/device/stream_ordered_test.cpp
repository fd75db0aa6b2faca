// Tests training with gradients on a device: the host runs ahead, and streams wait in its place.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/ready_fence.hpp>
#include <hvd/torch.hpp>

#include "collectives/device_event.hpp"
#include "device/gate.hpp"
#include "device/torch_device.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/cuda.hpp"

namespace hvd::test {
namespace {

constexpr int kRanks = 2;
constexpr int kParameters = 4;
constexpr std::int64_t kElements = 100;
constexpr int kWarmUp = 20;
constexpr int kAhead = 5;

/// Its backward pass fills the gradient with `value`, on the device.
struct Produce : torch::autograd::Function<Produce> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& parameter, double value) {
    context->save_for_backward({parameter});
    context->saved_data["value"] = value;
    return torch::zeros({});
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& /*gradients*/) {
    const torch::Tensor gradient = torch::empty_like(context->get_saved_variables().front());
    gradient.fill_(context->saved_data["value"].toDouble());
    return {gradient, torch::Tensor()};
  }
};

/// Tells when the gradient of a parameter has come for the first time.
struct FirstGradient final : torch::autograd::FunctionPostHook {
  explicit FirstGradient(std::promise<void>& told) : come(told) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    if (!std::exchange(noted, true)) come.set_value();
    return outputs;
  }
  std::promise<void>& come;
  bool noted = false;
};

/// Its backward pass throws when `come` is set, which another thread does.
struct Throw : torch::autograd::Function<Throw> {
  static inline std::promise<void> come;
  static torch::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                               const torch::Tensor& /*parameter*/) {
    return torch::zeros({});
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*context*/,
                                               const torch::autograd::tensor_list& /*gradients*/) {
    const auto waited = come.get_future().wait_for(std::chrono::seconds(30));
    throw std::runtime_error(waited == std::future_status::ready ? "planned" : "late");
  }
};

/// Has parameters of zeros and a buffer.
struct Net : torch::nn::Module {
  explicit Net(torch::Device device) {
    const auto options = torch::TensorOptions().device(device);
    for (int i = 0; i < kParameters; ++i) {
      values.push_back(
          register_parameter(fmt::format("p{}", i), torch::zeros({kElements}, options)));
    }
    register_buffer("b", torch::zeros({kElements}, options));
  }
  std::vector<torch::Tensor> values;
};

double gradient_of(int rank, int step, int parameter) {
  return rank + 2 * (step % 8) + 16 * parameter;  // also exact as bf16
}

/// Returns what SGD with the rate 1 makes of a parameter.
double after_steps(int steps, int parameter) {
  double sum = 0;
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) sum += gradient_of(rank, step, parameter) / kRanks;
  }
  return -sum;
}

void backward(const Net& net, int rank, int step) {
  torch::Tensor loss = torch::zeros({});
  for (int i = 0; i < kParameters; ++i) {
    loss =
        loss + Produce::apply(net.values[static_cast<std::size_t>(i)], gradient_of(rank, step, i));
  }
  loss.backward();
}

/// Trains for that many steps, and counts them.
template <class Optimizer>
void train_from(int& step, int steps, const Net& net, Optimizer& optimizer, int rank) {
  for (const int end = step + steps; step < end; ++step) {
    optimizer.zero_grad();
    backward(net, rank, step);
    optimizer.step();
  }
}

/// Reads the device's memory without waiting for it.
float peek(const torch::Tensor& tensor) {
  return *static_cast<const float*>(tensor.const_data_ptr());
}

class StreamOrdered : public testing::Test {
 protected:
  ~StreamOrdered() override {
    device_.reset();
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
    fake_gpu::reset(4);
  }

  /// Runs `body` on one thread per rank, each with a device and a context with NCCL.
  static void on_ranks(
      const std::function<void(Context&, torch::Device)>& body,
      const std::function<void(Config&)>& configure = [](Config&) {}) {
    const std::shared_ptr<Store> store = make_hash_store();
    auto transports = make_in_process_transports(kRanks);
    expect_threads(kRanks, [&](int rank) {
      Config config = thread_config(rank, kRanks);
      config.fusion_threshold = 2 * kElements * sizeof(float);
      configure(config);
      auto session = std::make_unique<Session>(config, store);
      auto host = make_ring_backend(std::move(transports[static_cast<std::size_t>(rank)]));
      auto backends = make_nccl_backends(*session, *host);
      backends.push_back(std::move(host));
      auto fence = make_host_fence(*session);
      Context context(std::move(session), std::move(backends), std::move(fence));
      body(context, torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(rank)));
    });
  }

 private:
  std::optional<TorchDevice> device_{std::in_place};
};

void expect_values(const Net& net, int steps) {
  for (int i = 0; i < kParameters; ++i) {
    const torch::Tensor value = net.values[static_cast<std::size_t>(i)].detach().cpu();
    EXPECT_TRUE(torch::equal(value, torch::full({kElements}, after_steps(steps, i)))) << i;
  }
}

/// Trains until the schedule is frozen, then goes on while the device stands still. Returns how
/// many operations LibTorch has queued meanwhile.
int run_ahead(Context& context, torch::Device device, Compression compression) {
  const auto net = std::make_shared<Net>(device);
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  const DistributedDataParallel parallel(net, {.compression = compression, .context = &context});
  int step = 0;
  const auto train = [&](int steps) { train_from(step, steps, *net, optimizer, context.rank()); };
  train(kWarmUp);
  expect_values(*net, kWarmUp);
  EXPECT_GT(context.stats().freezes, 0U);
  const int index = device.index();
  // One collective of each step, the agreement, is not on the device. The others, also of the
  // buffer, have one event each, for which our stream waits, and another for which the program's
  // stream does. A slow machine may thaw the schedule, so the step with the fewest events counts.
  int on_device = 0;
  const auto fewest_more_events = [&] {
    int fewest = kParameters;
    for (int i = 0; i < kAhead; ++i) {
      const int events = count_of(Counted::events_recorded, index);
      const std::uint64_t collectives = context.stats().collectives;
      train(1);
      const int now = static_cast<int>(context.stats().collectives - collectives) - 1;
      fewest = std::min(fewest, count_of(Counted::events_recorded, index) - events - now);
      on_device += now;
    }
    return fewest;
  };
  EXPECT_EQ(fewest_more_events(), 0) << "where collectives end before the host waits for them";
  expect_values(*net, kWarmUp + kAhead);
  Gate gate(device);
  gate.stop();
  on_device = 0;
  const int host_waits = count_of(Counted::host_waits, index);
  const int stream_waits = count_of(Counted::stream_waits, index);
  const int operations = count_of(Counted::operations, index);
  EXPECT_EQ(fewest_more_events(), 0);
  const int operations_now = count_of(Counted::operations, index);
  EXPECT_EQ(count_of(Counted::host_waits, index), host_waits);
  EXPECT_LT(on_device, kAhead * (kParameters + 1)) << "gradients share collectives";
  EXPECT_EQ(count_of(Counted::stream_waits, index) - stream_waits, on_device);
  EXPECT_EQ(peek(net->values[1]), static_cast<float>(after_steps(kWarmUp + kAhead, 1)));
  gate.open();
  expect_values(*net, kWarmUp + 2 * kAhead);
  return operations_now - operations;
}

TEST_F(StreamOrdered, StepsReturnWhileTheDeviceStandsStill) {
  on_ranks([](Context& context, torch::Device device) {
    EXPECT_GT(run_ahead(context, device, Compression::none), 0);
    context.shutdown();
  });
}

TEST_F(StreamOrdered, CompressionTakesNoOperationOfItsOwn) {
  on_ranks([](Context& context, torch::Device device) {
    const int plain = run_ahead(context, device, Compression::none);
    EXPECT_EQ(run_ahead(context, device, Compression::bf16), plain);
    EXPECT_EQ(run_ahead(context, device, Compression::fp16), plain);
    context.shutdown();
  });
}

/// Trains with a parameter that the last rank uses in every other step only.
void train_with_gaps(Context& context, torch::Device device, DistributedOptimizerOptions options) {
  constexpr std::size_t kGap = 1;
  options.context = &context;
  const auto net = std::make_shared<Net>(device);
  DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, options);
  const auto has_gap = [](int rank, int step) { return rank == kRanks - 1 && step % 2 == 1; };
  double expected = 0;
  for (int step = 0; step < 2 * kWarmUp; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::zeros({});
    for (std::size_t i = 0; i < net->values.size(); ++i) {
      if (i == kGap && has_gap(context.rank(), step)) continue;
      const double gradient = gradient_of(context.rank(), step, static_cast<int>(i));
      loss = loss + Produce::apply(net->values[i], gradient);
    }
    loss.backward();
    optimizer.step();
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!has_gap(rank, step)) expected -= gradient_of(rank, step, kGap) / kRanks;
    }
  }
  EXPECT_GT(context.stats().freezes, 0U);
  for (std::size_t i = 0; i < net->values.size(); ++i) {
    const double value = i == kGap ? expected : after_steps(2 * kWarmUp, static_cast<int>(i));
    EXPECT_TRUE(torch::equal(net->values[i].detach().cpu(), torch::full({kElements}, value))) << i;
  }
}

TEST_F(StreamOrdered, ParametersWithoutAGradientHoldUpNothing) {
  on_ranks([](Context& context, torch::Device device) {
    train_with_gaps(context, device, {});
    train_with_gaps(context, device, {.step_in_backward = true});
    train_with_gaps(context, device, {.num_groups = 2});
    train_with_gaps(context, device, {.wait_in_backward = false});
    context.shutdown();
  });
}

TEST_F(StreamOrdered, PassesThatAccumulateAreSubmittedOnce) {
  on_ranks([](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(
        *net, 1.0, {.backward_passes_per_step = 2, .context = &context});
    for (int step = 0; step < 2 * kWarmUp; step += 2) {
      optimizer.zero_grad();
      backward(*net, context.rank(), step);
      backward(*net, context.rank(), step + 1);
      optimizer.step();
    }
    expect_values(*net, 2 * kWarmUp);
    context.shutdown();
  });
}

// The pass has the gradient of one member of a bucket when it throws. The step adds the others.
TEST_F(StreamOrdered, TheStepReducesWhatAPassThatThrowsHasLeft) {
  on_ranks([](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    int step = 0;
    const auto train = [&](int steps) { train_from(step, steps, *net, optimizer, context.rank()); };
    train(kWarmUp);
    EXPECT_GT(context.stats().freezes, 0U);
    optimizer.zero_grad();
    if (context.rank() == 0) {
      backward(*net, 0, step);
    } else {
      const torch::Tensor& last = net->values.back();
      const double gradient = gradient_of(context.rank(), step, kParameters - 1);
      Throw::come = {};
      torch::autograd::impl::grad_accumulator(last)->add_post_hook(
          std::make_unique<FirstGradient>(Throw::come));
      const torch::Tensor thrown = Throw::apply(net->values.front());
      const torch::Tensor loss = thrown + Produce::apply(last, gradient);  // this runs first
      std::string message;
      try {
        loss.backward();
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, "planned");
    }
    optimizer.step();
    ++step;
    train(kWarmUp);
    for (int i = 0; i < kParameters; ++i) {
      const double missing = i < kParameters - 1 ? gradient_of(1, kWarmUp, i) / kRanks : 0;
      const double value = after_steps(step, i) + missing;
      EXPECT_TRUE(torch::equal(net->values[static_cast<std::size_t>(i)].detach().cpu(),
                               torch::full({kElements}, value)))
          << i;
    }
    context.shutdown();
  });
}

// The engine still refers to the memory of a gradient that the host has finished with.
TEST_F(StreamOrdered, GradientsThatAreZeroedInPlaceAreNotCopied) {
  on_ranks([](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    int step = 0;
    const auto train = [&](int steps) {
      for (const int end = step + steps; step < end; ++step) {
        optimizer.zero_grad(false);
        backward(*net, context.rank(), step);
        optimizer.step();
      }
    };
    train(kWarmUp);
    Gate gate(device);
    gate.stop();
    train(kAhead);
    EXPECT_EQ(optimizer.gradient_counters().copied, 0);
    gate.open();
    expect_values(*net, kWarmUp + kAhead);
    context.shutdown();
  });
}

// The host does not wait for the copy back to the program's buffer either.
TEST_F(StreamOrdered, GradientsInABufferOfTheProgramAreReducedThere) {
  on_ranks([](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    const torch::Tensor flat =
        torch::zeros({kParameters * kElements}, torch::TensorOptions().device(device));
    for (int i = 0; i < kParameters; ++i) {
      net->values[static_cast<std::size_t>(i)].mutable_grad() =
          flat.narrow(0, i * kElements, kElements);
    }
    int step = 0;
    const auto train = [&](int steps) {
      for (const int end = step + steps; step < end; ++step) {
        flat.zero_();
        backward(*net, context.rank(), step);
        optimizer.step();
      }
    };
    train(kWarmUp);
    Gate gate(device);
    gate.stop();
    train(kAhead);
    gate.open();
    expect_values(*net, kWarmUp + kAhead);
    const int last = kWarmUp + kAhead - 1;
    EXPECT_EQ(flat.cpu()[kElements].item<double>(),
              after_steps(last, 1) - after_steps(last + 1, 1));
    context.shutdown();
  });
}

TEST_F(StreamOrdered, ThreadsWaitIfTheUserWantsThat) {
  on_ranks(
      [](Context& context, torch::Device device) {
        const auto net = std::make_shared<Net>(device);
        DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
        for (int step = 0; step < kWarmUp; ++step) {
          optimizer.zero_grad();
          backward(*net, context.rank(), step);
          EXPECT_EQ(peek(net->values[1].grad()),
                    static_cast<float>(after_steps(step, 1) - after_steps(step + 1, 1)));
          optimizer.step();
        }
        expect_values(*net, kWarmUp);
        context.shutdown();
      },
      [](Config& config) { config.stream_ordered = false; });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(count_of(Counted::stream_waits, rank), 0);
}

TEST_F(StreamOrdered, AFailureAfterTheLaunchComesOutOfALaterStep) {
  on_ranks([](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    const auto step = [&](int number) {
      optimizer.zero_grad();
      backward(*net, context.rank(), number);
      optimizer.step();
    };
    for (int number = 0; number < kWarmUp; ++number) step(number);
    fake_gpu::fail(context.rank(), ncclRemoteError);
    const Error error = error_of([&] {
      const Deadline deadline = Clock::now() + std::chrono::seconds(30);
      for (int number = kWarmUp; Clock::now() < deadline; ++number) step(number);
    });
    EXPECT_TRUE(error.code() == Errc::peer_lost || error.code() == Errc::aborted) << error.what();
  });
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The abort ends the kernels of the reduction early, so the parameters are wrong after that step.
TEST_F(StreamOrdered, AFailureAfterTheLaunchLeavesTheLastCheckpoint) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / fmt::format("hvd-last-{}.pt", ::getpid());
  std::string saved;
  on_ranks([&](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    int step = 0;
    train_from(step, kWarmUp, *net, optimizer, context.rank());
    save_checkpoint(context, file, net);
    if (context.rank() == 0) saved = content_of(file);
    train_from(step, kWarmUp, *net, optimizer, context.rank());
    fake_gpu::hang(context.rank());
    const Error error = error_of([&] {
      train_from(step, 1, *net, optimizer, context.rank());
      fake_gpu::fail(context.rank(), ncclRemoteError);
      save_checkpoint(context, file, net);
    });
    EXPECT_TRUE(error.code() == Errc::peer_lost || error.code() == Errc::aborted) << error.what();
  });
  EXPECT_FALSE(saved.empty());
  EXPECT_TRUE(content_of(file) == saved) << "it was replaced";
  std::filesystem::remove(file);
}

// A program may construct its optimizer before it makes another stream current. The hooks and the
// collectives that they begin then have one stream, and the steps another.
TEST_F(StreamOrdered, ResultsStayWhileAnotherStreamReadsThem) {
  on_ranks([](Context& context, torch::Device device) {
    const c10::impl::VirtualGuardImpl interface(device.type());
    const auto start = [&](double value) {
      const torch::Tensor tensor = torch::full({kElements}, value).to(device);
      return allgather_async(tensor, {.name = "a", .context = &context});
    };
    const c10::Stream other = interface.getStreamFromGlobalPool(device);
    torch::Tensor sum = torch::zeros({kRanks * kElements}, torch::TensorOptions().device(device));
    static_cast<void>(sum.cpu());
    for (int i = 0; i < kAhead; ++i) {
      TensorWork work = start(1.0 + i);
      const c10::StreamGuard guard(other);
      sum.add_(work.wait());
    }
    const c10::StreamGuard guard(other);
    const double expected = kAhead * (kAhead + 1) / 2.0;
    EXPECT_TRUE(torch::equal(sum.cpu(), torch::full({kRanks * kElements}, expected)));
    context.shutdown();
  });
}

// Gradients belong to the stream of the hooks, and the steps may have another. NCCL does not reduce
// 16-bit integers, and for what goes through the host the thread waits too.
TEST_F(StreamOrdered, ReducedMemoryStaysWhileAnotherStreamReadsItHoweverTheProgramWaits) {
  on_ranks([](Context& context, torch::Device device) {
    const c10::Stream other =
        c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    for (const bool by_stream : {true, false}) {
      for (const auto type : {torch::kFloat32, torch::kInt16}) {
        detail::StreamWaits waits(by_stream);
        torch::Tensor sum = torch::zeros({kElements}, type).to(device);
        for (int i = 1; i <= kWarmUp; ++i) {
          torch::Tensor tensor = torch::full({kElements}, i, type).to(device);
          const AllreduceOptions options{.name = "a", .op = ReduceOp::sum, .context = &context};
          const Work work = allreduce_async_(tensor, options).work();
          const c10::StreamGuard guard(other);
          waits.wait(work, tensor);
          sum.add_(tensor);
          waits.end_reduction();
        }
        const c10::StreamGuard guard(other);
        const int expected = kRanks * kWarmUp * (kWarmUp + 1) / 2;
        EXPECT_TRUE(torch::equal(sum.cpu(), torch::full({kElements}, expected, type)))
            << by_stream << " " << type;
      }
    }
    context.shutdown();
  });
}

// The program's own memory may be reduced, which is nothing that LibTorch's allocator knows.
TEST_F(StreamOrdered, MemoryThatLibTorchHasNotAllocatedIsReduced) {
  on_ranks([](Context& context, torch::Device device) {
    constexpr std::size_t kBytes = kElements * sizeof(float);
    const detail::DeviceGuard guard(device.index());
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
    {
      torch::Tensor tensor = at::for_blob(memory, {kElements})
                                 .options(torch::TensorOptions().device(device))
                                 .target_device(device)
                                 .make_tensor();
      tensor.copy_(torch::ones({kElements}));
      const torch::Tensor sum =
          allreduce_async_(tensor, {.name = "a", .op = ReduceOp::sum, .context = &context}).wait();
      EXPECT_TRUE(torch::equal(sum.cpu(), torch::full({kElements}, double{kRanks})));
    }
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    context.shutdown();
  });
}

// An accumulator that the program has made before stays on the stream that was current then.
TEST_F(StreamOrdered, AShardWaitsForTheGradientsOfAllStreams) {
  on_ranks([](Context& context, torch::Device device) {
    const c10::impl::VirtualGuardImpl interface(device.type());
    const c10::Stream other = interface.getStreamFromGlobalPool(device);
    const auto net = std::make_shared<Net>(device);
    const auto on_other_stream = [&] {
      const c10::StreamGuard guard(other);
      return torch::autograd::impl::grad_accumulator(net->values[kParameters / 2]);
    };
    const auto kept = on_other_stream();
    ShardedOptimizer<torch::optim::SGD> optimizer(net->named_parameters(), 1.0,
                                                  {.context = &context});
    int step = 0;
    for (const bool elsewhere : {false, true}) {
      c10::OptionalStreamGuard guard;
      if (elsewhere) guard.reset_stream(other);
      train_from(step, kWarmUp, *net, optimizer, context.rank());
      expect_values(*net, step);
    }
    context.shutdown();
  });
}

/// Lets a kernel of one rank fail in a training. That kernel is the trainer's own, so the error may
/// be CUDA's or that of the reduction.
template <class OnRanks>
void train_until_a_kernel_fails(const OnRanks& on_ranks, int failing) {
  on_ranks([failing](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    const auto step = [&](int number) {
      optimizer.zero_grad();
      backward(*net, context.rank(), number);
      optimizer.step();
    };
    for (int number = 0; number < kWarmUp; ++number) step(number);
    if (context.rank() == failing) fake_gpu::break_device(device.index());
    std::string error;
    const Deadline deadline = Clock::now() + std::chrono::seconds(30);
    try {
      for (int number = kWarmUp; Clock::now() < deadline; ++number) step(number);
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    EXPECT_NE(error, "") << "rank " << context.rank();
    EXPECT_THAT(error, testing::Not(testing::HasSubstr("CUDA graph")));
    if (context.rank() == failing) context.disconnect();  // the error ends its process
  });
}

TEST_F(StreamOrdered, AFailedKernelEndsTheTrainingOfAllRanks) {
  train_until_a_kernel_fails([](const auto& body) { on_ranks(body); }, 0);
}

// The threads of the process have chosen no device. The first one, which is their current one,
// still works, and the failed one can no longer become it.
TEST_F(StreamOrdered, AFailedKernelOnAnotherDeviceEndsTheTrainingOfAllRanks) {
  train_until_a_kernel_fails([](const auto& body) { on_ranks(body); }, 1);
}

// A program may have parameters on several devices.
TEST_F(StreamOrdered, AScalerWaitsOnceForTheGradientsOfADevice) {
  for (const int parameters : {1, 8}) {
    for (const bool overflows : {false, true}) {
      std::vector<torch::Tensor> values;
      for (int i = 0; i < parameters; ++i) {
        for (const c10::DeviceIndex index : {0, 1}) {
          const torch::Device device(torch::kCUDA, index);
          values.push_back(torch::zeros({kElements}, torch::TensorOptions(device)));
          values.back().mutable_grad() = torch::full({kElements}, 4.0).to(device);
        }
      }
      if (overflows) values.front().mutable_grad().fill_(INFINITY);
      torch::optim::SGD optimizer(values, 1.0);
      GradScaler scaler({.init_scale = 4.0});
      const std::vector<int> before{count_of(Counted::host_waits, 0),
                                    count_of(Counted::host_waits, 1)};
      EXPECT_EQ(scaler.step(optimizer), !overflows);
      for (const int index : {0, 1}) {
        EXPECT_LE(count_of(Counted::host_waits, index) - before[static_cast<std::size_t>(index)], 1)
            << parameters << " parameters";
      }
      for (const torch::Tensor& value : values) {
        EXPECT_TRUE(torch::equal(value.cpu(), torch::full({kElements}, overflows ? 0.0 : -1.0)));
      }
    }
  }
}

/// The same numbers for the same seed.
torch::Tensor random_numbers(at::IntArrayRef shape, int seed) {
  return torch::randn(shape, torch::make_generator<at::CPUGeneratorImpl>(seed));
}

void expect_near(const torch::Tensor& on_device, const torch::Tensor& wanted) {
  EXPECT_TRUE(torch::allclose(on_device.detach().cpu(), wanted, 1e-4, 1e-4))
      << on_device.detach().cpu() << "\nnot " << wanted;
}

// A layer has one collective in `forward` and one in `backward`, whose results the stream waits
// for.
TEST_F(StreamOrdered, TheStatisticsOfAllRanksHoldUpNoHost) {
  constexpr std::int64_t kChannels = 3;
  const auto batch_of = [](int rank, int step) {
    return random_numbers({4, kChannels, 2}, 10 * step + rank) + rank;
  };
  for (const bool has_momentum : {true, false}) {
    on_ranks([&](Context& context, torch::Device device) {
      auto options = torch::nn::BatchNormOptions(kChannels);
      if (!has_momentum) options.momentum(std::nullopt);
      SyncBatchNorm norm(options, SyncBatchNormScope{.context = &context});
      norm->to(device);
      torch::nn::BatchNorm1d whole(options);
      std::vector<torch::Tensor> inputs;
      std::vector<torch::Tensor> results;
      for (int step = 0; step < kWarmUp + kAhead; ++step) {
        inputs.push_back(batch_of(context.rank(), step).to(device).requires_grad_());
      }
      int step = 0;
      const auto pass = [&] {
        results.push_back(norm(inputs[static_cast<std::size_t>(step++)]));
        results.back().pow(3).sum().backward();
      };
      while (step < kWarmUp) pass();
      const int index = device.index();
      Gate gate(device);
      gate.stop();
      const int host_waits = count_of(Counted::host_waits, index);
      const int stream_waits = count_of(Counted::stream_waits, index);
      while (step < kWarmUp + kAhead) pass();
      EXPECT_EQ(count_of(Counted::host_waits, index), host_waits);
      EXPECT_EQ(count_of(Counted::stream_waits, index) - stream_waits, 2 * kAhead);
      gate.open();
      for (int i = 0; i < step; ++i) {
        std::vector<torch::Tensor> batches;
        for (int rank = 0; rank < kRanks; ++rank) {
          batches.push_back(batch_of(rank, i).requires_grad_());
        }
        const auto wanted = whole(torch::cat(batches));
        wanted.pow(3).sum().backward();
        const auto own = static_cast<std::size_t>(context.rank());
        const auto at = static_cast<std::size_t>(i);
        expect_near(results[at], wanted.chunk(kRanks)[own]);
        expect_near(inputs[at].grad(), batches[own].grad());
      }
      expect_near(norm->running_mean, whole->running_mean);
      expect_near(norm->running_var, whole->running_var);
      context.shutdown();
    });
  }
}

TEST_F(StreamOrdered, ARankWithFewValuesWaitsForTheNumberOfAll) {
  for (const bool is_ordered : {true, false}) {
    const auto body = [](Context& context, torch::Device device) {
      const torch::nn::BatchNormOptions options(3);
      SyncBatchNorm norm(options, SyncBatchNormScope{.context = &context});
      norm->to(device);
      torch::nn::BatchNorm1d whole(options);
      const auto own_part = [&](const torch::Tensor& all) {
        return all.detach().split_with_sizes({1, 3})[static_cast<std::size_t>(context.rank())];
      };
      for (int step = 0; step < kWarmUp; ++step) {
        const torch::Tensor all = random_numbers({4, 3}, step).requires_grad_();
        const torch::Tensor own = own_part(all).to(device).requires_grad_();
        const torch::Tensor wanted = whole(all);
        const torch::Tensor result = norm(own);
        wanted.pow(3).sum().backward();
        result.pow(3).sum().backward();
        expect_near(result, own_part(wanted));
        expect_near(own.grad(), own_part(all.grad()));
      }
      const torch::Tensor too_few = torch::ones({context.rank() == 0 ? 1 : 0, 3}).to(device);
      EXPECT_EQ(error_of([&] { (void)norm(too_few); }).code(), Errc::invalid_argument);
      context.shutdown();
    };
    on_ranks(body, [&](Config& config) { config.stream_ordered = is_ordered; });
  }
}

/// Lets all ranks but the first submit after the first one has submitted and stopped its stream, so
/// that only the conversion of its result is behind the stop.
template <class Submit>
Work behind_a_gate(Context& context, std::latch& stopped, Gate& gate, const Submit& submit) {
  if (context.rank() != 0) stopped.wait();
  const Work work = submit();
  if (context.rank() != 0) return work;
  gate.stop();
  stopped.count_down();
  return work;
}

TEST_F(StreamOrdered, AConversionAtTheEndObeysTheDeadlineAndHoldsUpNoExit) {
  std::latch stopped(1);
  on_ranks(
      [&](Context& context, torch::Device device) {
        const torch::Tensor tensor = torch::ones({kElements}, torch::TensorOptions(device));
        Gate gate(device);
        const Work work = behind_a_gate(context, stopped, gate, [&] {
          return allreduce_async(tensor, {.name = "a", .context = &context}, Compression::bf16)
              .work();
        });
        if (context.rank() != 0) {
          // The first rank fails the job, maybe before this one has its result.
          return static_cast<void>(work.wait_until(Clock::now() + std::chrono::seconds(20)));
        }
        EXPECT_EQ(error_of([&] { work.wait(); }).code(), Errc::timeout);
        context.disconnect();
        gate.open();
      },
      [](Config& config) { config.collective_timeout = std::chrono::seconds(1); });
}

TEST_F(StreamOrdered, AConversionAtTheEndObeysAnAbort) {
  std::latch stopped(1);
  on_ranks([&](Context& context, torch::Device device) {
    const torch::Tensor tensor = torch::ones({kElements}, torch::TensorOptions(device));
    Gate gate(device);
    const Work work = behind_a_gate(context, stopped, gate, [&] {
      return allreduce_async(tensor, {.name = "a", .context = &context}, Compression::bf16).work();
    });
    if (context.rank() != 0) {
      work.wait();
      return context.abort("enough");
    }
    EXPECT_EQ(error_of([&] { work.wait(); }).code(), Errc::aborted);
    context.disconnect();
    gate.open();
  });
}

TEST_F(StreamOrdered, AConversionAtTheEndBreaksNoCaptureOfAnotherThread) {
  fake_gpu::capture_elsewhere(true);
  on_ranks([&](Context& context, torch::Device device) {
    const torch::Tensor tensor = torch::ones({kElements}, torch::TensorOptions(device));
    allreduce_async(tensor, {.name = "a", .context = &context}, Compression::bf16).wait();
    context.shutdown();
  });
  fake_gpu::capture_elsewhere(false);
}

// The hooks of a graph that is replayed do not run, so gradients in it would not be reduced. CUDA
// captures no default stream.
TEST_F(StreamOrdered, ABackwardPassInACapturedGraphIsRefusedAndTheJobGoesOn) {
  on_ranks([](Context& context, torch::Device device) {
    const c10::impl::VirtualGuardImpl interface(device.type());
    const c10::Stream captured = interface.getStreamFromGlobalPool(device);
    const c10::StreamGuard guard(captured);
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    int step = 0;
    const auto train = [&](int steps) { train_from(step, steps, *net, optimizer, context.rank()); };
    train(kWarmUp);
    optimizer.zero_grad();
    const void* const stream = interface.getStreamNativeHandle(captured);
    fake_gpu::capture(stream, true);
    const Error error = error_of([&] { backward(*net, context.rank(), step); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDA graph"));
    EXPECT_EQ(error_of([&] {
                allreduce_(net->values[0].detach(), {.name = "x", .context = &context});
              }).code(),
              Errc::unsupported);
    {
      const ScopedPause local = optimizer.no_sync();
      backward(*net, context.rank(), step);
    }
    fake_gpu::capture(stream, false);
    train(kWarmUp);
    expect_values(*net, 2 * kWarmUp);
    context.shutdown();
  });
}

// Each question is a call of the driver, and a model may have hundreds of gradients.
TEST_F(StreamOrdered, APassAsksOnceWhetherAGraphIsCaptured) {
  on_ranks([](Context& context, torch::Device device) {
    const auto net = std::make_shared<Net>(device);
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, 1.0, {.context = &context});
    int step = 0;
    train_from(step, kWarmUp, *net, optimizer, context.rank());
    expect_values(*net, kWarmUp);
    context.shutdown();
  });
  const int asked = fake_gpu::calls("cudaStreamIsCapturing");
  EXPECT_GE(asked, kRanks * kWarmUp);
  EXPECT_LT(asked, 2 * kRanks * kWarmUp) << "the start asks too";
}

// A process has its context on its own GPU only, also when its threads have chosen none. The handle
// of a default stream does not say of which device it is.
TEST_F(StreamOrdered, EventsMakeNoContextOnTheFirstDevice) {
  const torch::Tensor tensor = torch::empty({kElements}, torch::Device(torch::kCUDA, 1));
  const std::set<int> own = fake_gpu::contexts();
  EXPECT_EQ(own.count(0), 0U);
  std::shared_ptr<detail::StreamEvent> event;
  std::thread([&] { event = detail::record_device_event(tensor); }).join();
  std::thread([&] { event->record(); }).join();
  std::thread([&] { event.reset(); }).join();
  EXPECT_EQ(fake_gpu::contexts(), own);
}

/// Trains for one step with what one rank computes, on its own device.
void train_alone(const Net& net, torch::optim::Adam& optimizer, int rank) {
  optimizer.zero_grad();
  backward(net, rank, 0);
  optimizer.step();
}

/// Expects what rank 0 has after its step.
void expect_loaded(const Net& net, torch::optim::Adam& optimizer, const torch::Tensor& tensor,
                   torch::Device device) {
  for (int i = 0; i < kParameters; ++i) {
    const torch::Tensor& parameter = net.values[static_cast<std::size_t>(i)];
    EXPECT_EQ(parameter.device(), device);
    EXPECT_TRUE(parameter.requires_grad());
    const double gradient = gradient_of(0, 0, i);
    const double step = gradient == 0 ? 0 : -1;  // Adam's first step is as long as its rate
    EXPECT_TRUE(torch::allclose(parameter.detach().cpu(), torch::full({kElements}, step))) << i;
    const auto& state = static_cast<torch::optim::AdamParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
    EXPECT_EQ(state.step(), 1);
    EXPECT_EQ(state.exp_avg().device(), device);
    EXPECT_TRUE(torch::allclose(state.exp_avg().cpu(), torch::full({kElements}, 0.1 * gradient)))
        << i;
  }
  EXPECT_EQ(net.buffers().front().device(), device);
  EXPECT_EQ(tensor.device(), device);
  EXPECT_TRUE(torch::equal(tensor.cpu(), torch::full({kElements}, 5.0)));
}

// Loading makes no context on the GPU from which the archive was saved.
TEST_F(StreamOrdered, WhatIsLoadedStaysOnTheDeviceOfEachRank) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / fmt::format("hvd-loaded-{}.pt", ::getpid());
  on_ranks([&](Context& context, torch::Device own) {
    const torch::Device elsewhere(torch::kCUDA, kRanks);
    for (const bool by_file : {true, false}) {
      const bool saves = context.rank() == 0;
      const auto make = [](torch::Device device, double value) {
        return torch::full({kElements}, value).to(device);
      };
      const auto net = std::make_shared<Net>(own);
      torch::optim::Adam optimizer(net->parameters(), 1.0);
      torch::Tensor tensor = make(own, 2.0);
      const auto saved = std::make_shared<Net>(elsewhere);
      torch::optim::Adam saved_optimizer(saved->parameters(), 1.0);
      torch::Tensor saved_tensor = make(elsewhere, 5.0);
      if (saves) train_alone(*saved, saved_optimizer, 0);
      if (by_file) {
        save_checkpoint(context, file, saved, saved_optimizer, saved_tensor);
        const int before = count_of(Counted::operations, kRanks);
        auto loaded = net;
        load_checkpoint(context, file, loaded, optimizer, tensor);
        EXPECT_EQ(count_of(Counted::operations, kRanks), before);
        barrier({.context = &context});
        expect_loaded(*net, optimizer, tensor, own);
      } else {
        const ObjectOptions options{.context = &context};
        auto module = saves ? saved : net;
        broadcast_object_(module, 0, options);
        broadcast_object_(saves ? saved_optimizer : optimizer, 0, options);
        broadcast_object_(saves ? saved_tensor : tensor, 0, options);
        if (!saves) expect_loaded(*net, optimizer, tensor, own);
      }
      train_alone(*net, optimizer, context.rank());
    }
    context.shutdown();
  });
  std::filesystem::remove(file);
}

TEST_F(StreamOrdered, ATensorOfAnotherTypeIsRefused) {
  on_ranks([&](Context& context, torch::Device own) {
    const bool sends = context.rank() == 0;
    torch::Tensor tensor = torch::full({kElements}, 2, sends ? torch::kInt64 : torch::kFloat32);
    tensor = tensor.to(own);
    std::string error;
    try {
      broadcast_object_(tensor, 0, {.context = &context});
    } catch (const std::invalid_argument& thrown) {
      error = thrown.what();
    }
    EXPECT_EQ(error, sends ? "" : "a tensor is Float, and the archive has Long");
    EXPECT_EQ(tensor.device(), own);
    EXPECT_EQ(tensor.scalar_type(), sends ? torch::kInt64 : torch::kFloat32);
    context.shutdown();
  });
}

TEST_F(StreamOrdered, TheStateOfAnOptimizerOnTheCpuStaysThere) {
  on_ranks([&](Context& context, torch::Device own) {
    const auto net = std::make_shared<Net>(torch::kCPU);
    torch::optim::Adam optimizer(net->parameters(), 1.0);
    train_alone(*net, optimizer, 0);
    broadcast_object_(optimizer, 0, {.context = &context, .device = own});
    expect_loaded(*net, optimizer, torch::full({kElements}, 5.0), torch::kCPU);
    context.shutdown();
  });
}

}  // namespace
}  // namespace hvd::test
