// Tests calls of the NCCL backend that continue after they have returned, on the fake GPU, and
// whole contexts that make such calls.
#include <barrier>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/session.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/cuda.hpp"
#include "nccl/nccl_backend.hpp"
#include "nccl/pinned_backend.hpp"
#include "nccl_checks.hpp"
#include "stream_event.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;

constexpr int kRanks = 3;

/// A stream of the trainer that stands still until it is let go, and an event behind that.
class StillStream {
 public:
  StillStream() {
    EXPECT_EQ(
        cudaLaunchHostFunc(
            stream_.get(),
            [](void* until) { static_cast<std::shared_future<void>*>(until)->wait(); }, &still_),
        cudaSuccess);
  }
  ~StillStream() {
    if (!moves_) let_go();
    while (cudaStreamQuery(stream_.get()) == cudaErrorNotReady) std::this_thread::yield();
    static_cast<void>(cudaGetLastError());
  }
  StillStream(const StillStream&) = delete;
  StillStream& operator=(const StillStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
  void let_go() {
    moves_ = true;
    open_.set_value();
  }

 private:
  CudaStream stream_;
  std::promise<void> open_;
  std::shared_future<void> still_ = open_.get_future().share();
  bool moves_ = false;
};

class NcclAsync : public ::testing::Test {
 protected:
  NcclAsync() { fake_gpu::reset(kRanks); }
  ~NcclAsync() override { fake_gpu::reset(0); }

  void TearDown() override {
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
  }

  static void on_all_ranks(const std::function<void(BackendChecks)>& body) {
    Hosts hosts(kRanks);
    expect_threads(kRanks, [&](int rank) {
      NcclBackend backend(GpuRank{rank, kRanks, rank}, hosts[rank], make_kernel_copier());
      const DeviceGuard guard(rank);
      CudaMemory memory;
      body({backend, memory, Device{Device::Kind::cuda, rank}, rank, kRanks});
    });
  }
};

/// Fused tensors on one rank's device, which are reduced and then checked.
class Tensors {
 public:
  Tensors(BackendChecks checks, std::int64_t count) : checks_(checks), count_(count) {
    for (int i = 0; i < 3; ++i) {
      std::byte* const data =
          checks.memory.put(encode(DType::f32, sample(DType::f32, checks.rank, count)));
      slices_.push_back({data, data, count});
    }
  }

  [[nodiscard]] std::unique_ptr<AsyncCollective> start(Backend& backend,
                                                       Deadline deadline = soon()) const {
    backend.allow_async();
    backend.allreduce({slices_, checks_.device, DType::f32, ReduceOp::sum}, deadline);
    return backend.take_async();
  }
  void expect_reduced() const {
    const auto expected = reduced_sample(DType::f32, ReduceOp::sum, kRanks, count_, {});
    for (const TensorSlice& tensor : slices_) {
      const Bytes bytes = checks_.memory.get(tensor.output, static_cast<std::size_t>(4 * count_));
      EXPECT_EQ(count_wrong(DType::f32, bytes, expected), 0) << "rank " << checks_.rank;
    }
  }

 private:
  BackendChecks checks_;
  std::int64_t count_;
  std::vector<TensorSlice> slices_;
};

void complete(AsyncCollective& call) {
  const Deadline deadline = soon();
  while (!call.try_complete()) {
    if (Clock::now() > deadline) return ADD_FAILURE() << "does not complete";
    std::this_thread::yield();
  }
}

Errc failure_of(AsyncCollective& call) {
  return error_of([&] { complete(call); }).code();
}

TEST_F(NcclAsync, CallsAreLaunchedOneBehindTheOther) {
  on_all_ranks([](BackendChecks checks) {
    const Tensors first(checks, 100);
    const Tensors second(checks, 70);
    const auto one = first.start(checks.backend);
    const auto two = second.start(checks.backend);
    ASSERT_TRUE(one && two);
    complete(*one);
    first.expect_reduced();
    complete(*two);
    second.expect_reduced();
    checks.backend.barrier(soon());
    EXPECT_EQ(checks.backend.take_async(), nullptr) << "nobody has allowed it";
  });
  EXPECT_EQ(fake_gpu::collectives_run(), 3 * kRanks);
}

TEST_F(NcclAsync, TheFusionMemoryGrowsWhenWhatUsesItIsComplete) {
  on_all_ranks([](BackendChecks checks) {
    const Tensors little(checks, 10);
    const Tensors much(checks, 200'000);
    const auto one = little.start(checks.backend);
    const auto two = much.start(checks.backend);
    complete(*one);
    complete(*two);
    little.expect_reduced();
    much.expect_reduced();
  });
}

TEST_F(NcclAsync, AnotherThreadMayPoll) {
  on_all_ranks([](BackendChecks checks) {
    const Tensors first(checks, 300);
    const auto call = first.start(checks.backend);
    std::thread poller([&] { complete(*call); });
    for (int i = 0; i < 5; ++i) {
      const Tensors more(checks, 20 + i);
      complete(*more.start(checks.backend));
    }
    poller.join();
    first.expect_reduced();
  });
}

TEST_F(NcclAsync, ADeadlineEndsOneThatHangsAndAllBehindIt) {
  on_all_ranks([](BackendChecks checks) {
    checks.backend.barrier(soon());  // the first call may take longer, since it starts NCCL
    fake_gpu::hang(checks.rank);
    const Tensors first(checks, 20);
    const Tensors second(checks, 20);
    // A loaded machine may need this much time to launch the call.
    const auto one = first.start(checks.backend, Clock::now() + milliseconds(1'000));
    const auto two = second.start(checks.backend);
    EXPECT_EQ(failure_of(*one), Errc::timeout);
    EXPECT_EQ(failure_of(*two), Errc::timeout);
    EXPECT_EQ(error_of([&] { checks.backend.barrier(soon()); }).code(), Errc::timeout);
  });
}

TEST_F(NcclAsync, AbortEndsTheCallsOfASubsetToo) {
  // Both orders are tested: an aborted communicator waits for what is before it in the stream.
  for (const bool whole_first : {true, false}) {
    on_all_ranks([&](BackendChecks checks) {
      const std::vector<int> everybody{0, 1, 2};
      const auto subset = checks.backend.subset(everybody, soon());
      for (Backend* const each : {&checks.backend, subset.get()}) each->barrier(soon());
      fake_gpu::hang(checks.rank);
      const Tensors first(checks, 20);
      const Tensors second(checks, 20);
      const auto one = first.start(whole_first ? checks.backend : *subset);
      const auto two = second.start(whole_first ? *subset : checks.backend);
      checks.backend.abort();
      EXPECT_EQ(failure_of(*two), Errc::aborted);
      EXPECT_EQ(failure_of(*one), Errc::aborted);
    });
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    fake_gpu::reset(kRanks);
  }
}

// A call of CUDA may block while a kernel hangs, so none comes before the aborts that end it.
TEST_F(NcclAsync, AnAbortIsSeenBeforeCudaIsAsked) {
  const auto asked = [] {
    return fake_gpu::calls("cudaGetDevice") + fake_gpu::calls("cudaEventQuery");
  };
  int before = 0;
  std::barrier together(kRanks);
  on_all_ranks([&](BackendChecks checks) {
    fake_gpu::hang(checks.rank);
    const Tensors tensors(checks, 20);
    const auto call = tensors.start(checks.backend);
    checks.backend.abort();
    together.arrive_and_wait();
    if (checks.rank == 0) before = asked();
    together.arrive_and_wait();
    EXPECT_EQ(failure_of(*call), Errc::aborted);
    together.arrive_and_wait();
    const int now = asked();
    EXPECT_EQ(now, before) << "rank " << checks.rank;
    together.arrive_and_wait();
  });
}

TEST_F(NcclAsync, AnAbortBeforeACallIsSeenBeforeCudaIsAsked) {
  std::barrier together(kRanks);
  on_all_ranks([&](BackendChecks checks) {
    checks.backend.barrier(soon());
    checks.backend.abort();
    together.arrive_and_wait();
    const int before = fake_gpu::calls("cudaGetDevice");
    together.arrive_and_wait();
    EXPECT_EQ(error_of([&] { checks.backend.barrier(soon()); }).code(), Errc::aborted);
    together.arrive_and_wait();
    EXPECT_EQ(fake_gpu::calls("cudaGetDevice"), before) << "rank " << checks.rank;
    together.arrive_and_wait();
  });
}

TEST_F(NcclAsync, CudaIsNotAskedAgainAfterAnAbort) {
  for (const std::string_view question : {"cudaEventQuery", "cudaStreamQuery"}) {
    fake_gpu::reset(1);
    Hosts hosts(1);
    NcclBackend backend(GpuRank{0, 1, 0}, hosts[0], make_kernel_copier());
    backend.barrier(soon());
    fake_gpu::hang(0);
    std::unique_ptr<AsyncCollective> queued;
    const std::vector<TensorSlice> absent(2, {nullptr, nullptr, 9});
    if (question == "cudaStreamQuery") {  // the fusion memory grows when the queue is empty
      backend.allow_async();
      backend.barrier(soon());
      queued = backend.take_async();
    }
    const int before = fake_gpu::calls(question);
    fake_gpu::on_next(question, [&] { backend.abort(); });
    EXPECT_EQ(error_of([&] {
                backend.allreduce({absent, Device{Device::Kind::cuda, 0}}, soon());
              }).code(),
              Errc::aborted);
    const int at_the_end = 1;  // when nothing hangs any more
    EXPECT_LE(fake_gpu::calls(question) - before, 1 + at_the_end) << question;
  }
}

// The time limit of a collective is that of its own work.
TEST_F(NcclAsync, TheTimeOfACallBeginsWhenThoseBeforeItAreComplete) {
  on_all_ranks([](BackendChecks checks) {
    StillStream trainer;
    StreamEvent ready(trainer.get());
    const Tensors first(checks, 20);
    const Tensors second(checks, 20);
    complete(*first.start(checks.backend));  // there is memory now: what follows is launched
    checks.backend.after(ready, soon());
    const auto one = first.start(checks.backend);
    const Deadline deadline = Clock::now() + milliseconds(2'000);
    const auto two = second.start(checks.backend, deadline);
    while (Clock::now() <= deadline) {
      ASSERT_FALSE(one->try_complete());
      std::this_thread::yield();
    }
    trainer.let_go();
    complete(*one);
    complete(*two);
    second.expect_reduced();
  });
}

// NCCL connects the ranks in the first collective of a kind, which is not launched before.
TEST_F(NcclAsync, ARankThatMissesTheFirstCollectiveOfAKindIsATimeout) {
  on_all_ranks([](BackendChecks checks) {
    checks.backend.barrier(soon());
    if (checks.rank != 0) return;
    std::byte* const data = checks.memory.put(Bytes(8));
    const std::vector<TensorSlice> slices{{data, data, 2}};
    checks.backend.allow_async();
    EXPECT_EQ(error_of([&] {
                checks.backend.broadcast({slices, checks.device, DType::f32, 0},
                                         Clock::now() + milliseconds(50));
              }).code(),
              Errc::timeout);
  });
}

// CUDA may give memory of the device only when the kernels that run there have ended.
TEST_F(NcclAsync, AnAllocationOfTheProgramMayWaitForACollective) {
  std::barrier together(kRanks);
  on_all_ranks([&](BackendChecks checks) {
    const Tensors tensors(checks, 20);
    const auto call = tensors.start(checks.backend);
    static_cast<void>(checks.memory.put(Bytes(8)));
    EXPECT_GT(fake_gpu::collectives_run(), 0) << "rank " << checks.rank;
    together.arrive_and_wait();
    complete(*call);
    tensors.expect_reduced();
  });
}

// To start NCCL takes memory of the device. CUDA may give it only when the queued kernels have run,
// and those may wait for a rank that is lost.
TEST_F(NcclAsync, ASetStartsWhenTheCallsBeforeItAreComplete) {
  on_all_ranks([](BackendChecks checks) {
    const auto set = checks.backend.subset(std::vector<int>{0, 1, 2}, soon());
    const Tensors tensors(checks, 100);
    const auto call = tensors.start(checks.backend);
    set->barrier(soon());
    complete(*call);
    tensors.expect_reduced();
  });
}

TEST_F(NcclAsync, AnAbortEndsTheWaitOfASetThatStarts) {
  on_all_ranks([](BackendChecks checks) {
    const auto set = checks.backend.subset(std::vector<int>{0, 1, 2}, soon());
    checks.backend.barrier(soon());
    fake_gpu::hang(checks.rank);
    const Tensors tensors(checks, 100);
    const auto call = tensors.start(checks.backend);
    std::thread aborter([&] { checks.backend.abort(); });
    EXPECT_EQ(error_of([&] { set->barrier(soon()); }).code(), Errc::aborted);
    aborter.join();
    EXPECT_EQ(failure_of(*call), Errc::aborted);
  });
}

TEST_F(NcclAsync, AStreamOfTheTrainersThatStandsStillIsATimeout) {
  on_all_ranks([](BackendChecks checks) {
    StillStream trainer;
    StreamEvent ready(trainer.get());
    const Tensors gradients(checks, 20);
    complete(*gradients.start(checks.backend));  // there is memory now: what follows is launched
    checks.backend.after(ready, soon());
    const Deadline deadline = Clock::now() + milliseconds(50);
    const auto fails_with = [](const std::function<void()>& call) { return error_of(call).code(); };
    EXPECT_EQ(fails_with([&] { complete(*gradients.start(checks.backend, deadline)); }),
              Errc::timeout);
    EXPECT_EQ(fails_with([&] { checks.backend.barrier(soon()); }), Errc::timeout);
    trainer.let_go();
  });
}

/// Makes a call of `backend` that waits for `trainer`, and destroys the backend meanwhile.
void destroy_behind(StillStream& trainer, std::unique_ptr<Backend> backend, const Tensors& of) {
  const auto run = [&](Deadline deadline) {
    if (const auto call = of.start(*backend, deadline)) complete(*call);
  };
  run(soon());  // there is memory now: what follows is launched
  StreamEvent ready(trainer.get());
  backend->after(ready, soon());
  EXPECT_EQ(error_of([&] { run(Clock::now() + milliseconds(50)); }).code(), Errc::timeout);
  auto destroyed = std::async(std::launch::async, [&] { backend.reset(); });
  EXPECT_EQ(destroyed.wait_until(soon()), std::future_status::ready)
      << "the process could not exit";
  trainer.let_go();
}

TEST_F(NcclAsync, AStreamThatStandsStillDoesNotHoldUpTheEnd) {
  Hosts hosts(kRanks);
  expect_threads(kRanks, [&](int rank) {
    auto backend = std::make_unique<NcclBackend>(GpuRank{rank, kRanks, rank}, hosts[rank],
                                                 make_kernel_copier());
    const DeviceGuard guard(rank);
    CudaMemory memory;
    StillStream trainer;
    const Tensors tensors({*backend, memory, Device{Device::Kind::cuda, rank}, rank, kRanks}, 20);
    destroy_behind(trainer, std::move(backend), tensors);
  });
}

TEST_F(NcclAsync, AStreamThatStandsStillDoesNotHoldUpTheEndOfPinnedMemory) {
  Hosts hosts(kRanks);
  expect_threads(kRanks, [&](int rank) {
    auto backend = std::make_unique<PinnedBackend>(GpuRank{rank, kRanks, rank}, hosts[rank],
                                                   make_kernel_copier());
    const DeviceGuard guard(rank);
    CudaMemory memory;
    StillStream trainer;
    const Tensors tensors({*backend, memory, Device{Device::Kind::cuda, rank}, rank, kRanks}, 20);
    destroy_behind(trainer, std::move(backend), tensors);
  });
}

TEST_F(NcclAsync, AfterAFailedKernelTheCommunicatorsAreAbortedAtOnce) {
  std::latch aborted(kRanks);
  on_all_ranks([&](BackendChecks checks) {
    const Tensors tensors(checks, 20);
    const auto call = tensors.start(checks.backend);
    fake_gpu::break_device(checks.device.index);
    // The thread has the first device, so for other ranks already the choice of theirs fails.
    std::thread([&] {
      const Error error = error_of([&] { complete(*call); });
      EXPECT_EQ(error.code(), Errc::internal);
      EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorIllegalAddress"));
    }).join();
    const Deadline deadline = soon();
    while (fake_gpu::calls("ncclCommAbort") < kRanks && Clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(fake_gpu::calls("ncclCommAbort"), kRanks) << "other ranks' kernels would wait";
    EXPECT_EQ(error_of([&] { checks.backend.barrier(soon()); }).code(), Errc::internal);
    aborted.arrive_and_wait();
  });
}

TEST_F(NcclAsync, AFailedKernelDoesNotHoldUpTheEnd) {
  Hosts hosts(kRanks);
  std::latch done(kRanks);
  expect_threads(kRanks, [&](int rank) {
    const GpuRank self{rank, kRanks, rank};
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<NcclBackend>(self, hosts[rank], make_kernel_copier()));
    backends.push_back(std::make_unique<PinnedBackend>(self, hosts[rank], make_kernel_copier()));
    const DeviceGuard guard(rank);
    CudaMemory memory;
    for (const auto& backend : backends) {
      BackendChecks checks{*backend, memory, Device{Device::Kind::cuda, rank}, rank, kRanks};
      EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {20, 3}, true), 0);
    }
    done.arrive_and_wait();
    fake_gpu::break_device(rank);
    // Nobody has noticed the failure yet, and this thread has the first device.
    auto ended = std::async(std::launch::async, [&] { backends.clear(); });
    EXPECT_EQ(ended.wait_until(soon()), std::future_status::ready);
  });
}

TEST_F(NcclAsync, AfterAFailedKernelPinnedMemoryIsOfNoUse) {
  Hosts hosts(kRanks);
  expect_threads(kRanks, [&](int rank) {
    PinnedBackend backend(GpuRank{rank, kRanks, rank}, hosts[rank], make_kernel_copier());
    const DeviceGuard guard(rank);
    CudaMemory memory;
    const Tensors tensors({backend, memory, Device{Device::Kind::cuda, rank}, rank, kRanks}, 20);
    fake_gpu::break_device(rank);
    for (int i = 0; i < 2; ++i) {
      std::thread([&] {
        const Error error = error_of([&] { static_cast<void>(tensors.start(backend)); });
        EXPECT_EQ(error.code(), Errc::internal);
        EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorIllegalAddress"));
      }).join();
    }
  });
}

// cudaMemcpy from pageable memory returns when the source may be written again. The destination is
// written later, and only the default stream waits for that.
TEST_F(NcclAsync, ACopyFromPageableMemoryMayLandAfterItHasReturned) {
  on_all_ranks([](BackendChecks checks) {
    const Tensors tensors(checks, 300);
    Bytes values = encode(DType::f32, sample(DType::f32, checks.rank, 300));
    const Bytes others(values.size(), std::byte{0x7F});
    for (const bool waits : {true, false}) {
      std::byte* const data = checks.memory.put(others);
      EXPECT_EQ(cudaMemcpy(data, values.data(), values.size(), cudaMemcpyHostToDevice),
                cudaSuccess);
      if (waits) {
        StreamEvent ready(nullptr);
        checks.backend.after(ready, soon());
      }
      const std::vector<TensorSlice> slices{{data, data, 300}};
      checks.backend.allreduce({slices, checks.device, DType::f32, ReduceOp::max}, soon());
      const auto expected = reduced_sample(DType::f32, ReduceOp::max, kRanks, 300, {});
      if (waits) {
        EXPECT_EQ(count_wrong(DType::f32, checks.memory.get(data, values.size()), expected), 0);
      } else {
        EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
        EXPECT_EQ(checks.memory.get(data, values.size()), values) << "the copy came last";
      }
    }
  });
}

TEST_F(NcclAsync, WhatNcclFindsOutIsReported) {
  on_all_ranks([](BackendChecks checks) {
    fake_gpu::fail(checks.rank, ncclRemoteError);
    const Tensors first(checks, 10);
    EXPECT_EQ(error_of([&] { complete(*first.start(checks.backend)); }).code(), Errc::peer_lost);
  });
}

/// Runs `body` on one thread per rank, each with a context. Rank r has device r % `devices`.
void on_contexts(int devices, const std::function<void(Context&, Device)>& body) {
  fake_gpu::reset(devices);
  const std::shared_ptr<Store> store = make_hash_store();
  auto transports = make_in_process_transports(kRanks);
  expect_threads(kRanks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Config config = thread_config(rank, kRanks);
    config.fusion_threshold = 1'000;
    auto session = std::make_unique<Session>(config, store);
    auto host = make_ring_backend(std::move(transports[r]));
    auto backends = make_nccl_backends(*session, *host);
    backends.push_back(std::move(host));
    auto fence = make_host_fence(*session);
    Context context(std::move(session), std::move(backends), std::move(fence));
    const Device device{Device::Kind::cuda, rank % devices};
    const DeviceGuard guard(device.index);
    body(context, device);
    context.shutdown();
  });
}

/// Submits a sum of 100 elements, in place.
Work submit_sum(Context& context, std::string name, Device device, std::byte* data) {
  Submission submission;
  submission.request.kind = OpKind::allreduce;
  submission.request.name = std::move(name);
  submission.request.shape = {100};
  submission.request.device = device;
  submission.request.op = ReduceOp::sum;
  submission.input = submission.output = data;
  return context.submit(std::move(submission));
}

TEST_F(NcclAsync, StepsOfWholeContexts) {
  on_contexts(kRanks, [](Context& context, Device device) {
    const int rank = context.rank();
    CudaMemory memory;
    const auto value = [&](int step, int tensor, int of) { return 100 * step + 10 * tensor + of; };
    for (int step = 0; step < 20; ++step) {
      std::vector<std::byte*> data;
      std::vector<Work> works;
      for (int tensor = 0; tensor < 8; ++tensor) {
        const std::vector<double> mine(100, value(step, tensor, rank));
        data.push_back(memory.put(encode(DType::f32, mine)));
        works.push_back(submit_sum(context, "g" + std::to_string(tensor), device, data.back()));
      }
      for (int tensor = 0; tensor < 8; ++tensor) {
        const auto t = static_cast<std::size_t>(tensor);
        works[t].wait();
        double sum = 0;
        for (int of = 0; of < kRanks; ++of) sum += value(step, tensor, of);
        EXPECT_EQ(memory.get(data[t], 400), encode(DType::f32, std::vector<double>(100, sum)));
      }
    }
    EXPECT_GT(context.stats().freezes, 0U);
  });
}

/// A rank that has joined takes part with its own device, which has another number.
void expect_joined_ranks_to_take_part(int devices) {
  on_contexts(devices, [](Context& context, Device device) {
    CudaMemory memory;
    // Rank 0 reduces alone at last, on the first device.
    for (int round = kRanks; round > context.rank(); --round) {
      std::vector<std::byte*> data;
      std::vector<Work> works;
      for (int tensor = 0; tensor < 3; ++tensor) {
        data.push_back(memory.put(encode(DType::f32, std::vector<double>(100, 1.0))));
        const std::string name = "r" + std::to_string(round) + "g" + std::to_string(tensor);
        works.push_back(submit_sum(context, name, device, data.back()));
      }
      for (Work& work : works) work.wait();
      for (const std::byte* const each : data) {
        const std::vector<double> sum(100, round);
        EXPECT_EQ(memory.get(each, 400), encode(DType::f32, sum)) << "round " << round;
      }
    }
    EXPECT_EQ(context.join(), 0);
  });
}

TEST_F(NcclAsync, RanksThatHaveJoinedTakePart) { expect_joined_ranks_to_take_part(kRanks); }

TEST_F(NcclAsync, RanksThatHaveJoinedTakePartThroughTheHost) {
  expect_joined_ranks_to_take_part(kRanks - 1);
}

}  // namespace
}  // namespace hvd::test
