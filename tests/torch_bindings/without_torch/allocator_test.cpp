// Tests the replacement of LibTorch's CPU allocator under the sanitizers: threads allocate and free
// at the same time and in any order, while optimizers and contexts begin and end.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

#include "fake_torch.hpp"
#include "gradients/gradient_allocator.hpp"

namespace c10 {

namespace {

/// The allocator before the replacement. ASan sees each of its blocks, and a block of another
/// allocator that is freed with it.
class FromHeap final : public Allocator {
 public:
  DataPtr allocate(std::size_t bytes) override {
    void* const memory = bytes == 0 ? nullptr : std::malloc(bytes);
    return {memory, memory, &std::free, Device(DeviceType::CPU)};
  }
  DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

FromHeap from_heap;
Allocator* installed = &from_heap;

}  // namespace

void Allocator::default_copy_data(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
Allocator* GetCPUAllocator() { return installed; }
void SetCPUAllocator(Allocator* allocator, std::uint8_t /*priority*/) { installed = allocator; }

}  // namespace c10

namespace hvd {
namespace {

using namespace detail;

using c10::DataPtr;

constexpr std::array<std::size_t, 3> kGradients{1 << 10, 3 << 12, 1 << 16};
constexpr std::array<std::size_t, 3> kOthers{24, 1 << 12, 3 << 15};
constexpr int kThreads = 4;
constexpr int kRounds = 1500;
constexpr std::chrono::seconds kDeadline{20};

/// Acquires a heap as `GradientPlacement` does for the gradients of one optimizer.
class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<Arena> arena)
      : heap_(GradientAllocator::installed().acquire(std::move(arena))) {
    for (const std::size_t bytes : kGradients) heap_->expect(bytes);
  }
  ~Optimizer() {
    for (const std::size_t bytes : kGradients) heap_->forget(bytes);
    GradientAllocator::installed().release(heap_);
  }
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void use_here() const { GradientAllocator::use_on_this_thread(heap_); }
  [[nodiscard]] GradientHeap& heap() const { return *heap_; }

 private:
  std::shared_ptr<GradientHeap> heap_;
};

struct BackwardPass {
  BackwardPass() { torch::autograd::current_graph_task = 1; }
  ~BackwardPass() { torch::autograd::current_graph_task = -1; }
};

/// Holds blocks that one thread allocates and another frees.
class Exchange {
 public:
  void put(DataPtr block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }
  /// Frees about half of the blocks, the oldest first.
  void free_some() {
    std::vector<DataPtr> old;
    {
      const std::lock_guard lock(mutex_);
      const auto half = blocks_.begin() + static_cast<std::ptrdiff_t>((blocks_.size() + 1) / 2);
      std::move(blocks_.begin(), half, std::back_inserter(old));
      blocks_.erase(blocks_.begin(), half);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<DataPtr> blocks_;
};

/// Allocates a block and writes its first and last byte, so that two owners of one block are
/// detected.
DataPtr allocate(std::size_t bytes) {
  DataPtr block = c10::GetCPUAllocator()->allocate(bytes);
  auto* const memory = static_cast<unsigned char*>(block.get());
  memory[0] = memory[bytes - 1] = static_cast<unsigned char>(bytes);
  return block;
}

bool in_arena(const Arena& arena, const DataPtr& block) { return arena.contains(block.get(), 1); }

/// Runs two ranks as threads of this process, since an arena is shared by at least two ranks.
void with_arena(const std::function<void(const std::shared_ptr<Arena>&)>& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(2, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, 2), store);
    ASSERT_TRUE(context->arena());
    if (rank == 0) body(context->arena());
  });
}

void run(const std::function<void(int)>& body) { test::expect_threads(kThreads, body); }

TEST(GradientAllocatorAlone, ManyThreadsAllocateAndOthersFree) {
  with_arena([](const std::shared_ptr<Arena>& arena) {
    {
      const Optimizer optimizer(arena);
      Exchange exchange;
      std::atomic<int> born_there{0};
      run([&](int thread) {
        optimizer.use_here();
        for (int round = 0; round < kRounds; ++round) {
          const auto each = static_cast<std::size_t>(round + thread) % kGradients.size();
          EXPECT_FALSE(in_arena(*arena, allocate(kGradients[each]))) << "outside of a pass";
          const BackwardPass pass;
          DataPtr gradient = allocate(kGradients[each]);
          born_there += in_arena(*arena, gradient) ? 1 : 0;
          exchange.put(std::move(gradient));
          DataPtr other = allocate(kOthers[each]);
          EXPECT_FALSE(in_arena(*arena, other));
          exchange.put(std::move(other));
          exchange.free_some();
        }
      });
      EXPECT_EQ(born_there, kThreads * kRounds);
    }
    EXPECT_EQ(arena->used(), 0U);
  });
}

// Threads are in a pass when the optimizer whose heap they use ends.
TEST(GradientAllocatorAlone, OptimizersComeAndGoWhileThreadsAllocate) {
  with_arena([](const std::shared_ptr<Arena>& arena) {
    Exchange exchange;
    std::atomic<bool> done{false};
    std::mutex mutex;
    std::shared_ptr<Optimizer> current;  // guarded by `mutex`
    std::thread trainer([&] {
      for (int round = 0; round < kRounds; ++round) {
        const auto next = round % 2 == 0 ? std::make_shared<Optimizer>(arena) : nullptr;
        const std::lock_guard lock(mutex);
        current = next;
      }
      done = true;
    });
    run([&](int thread) {
      const BackwardPass pass;
      for (int round = thread; !done; ++round) {
        {
          const std::lock_guard lock(mutex);
          if (current) current->use_here();
        }
        const auto each = static_cast<std::size_t>(round) % kGradients.size();
        exchange.put(allocate(kGradients[each]));
        exchange.put(allocate(kOthers[each]));
        exchange.free_some();
      }
    });
    trainer.join();
  });
}

// The optimizer ends just after the thread has learned that its heap wants the block.
TEST(GradientAllocatorAlone, AnOptimizerEndsWhileAThreadIsAboutToAllocate) {
  with_arena([](const std::shared_ptr<Arena>& arena) {
    auto optimizer = std::make_unique<Optimizer>(arena);
    optimizer->use_here();
    const BackwardPass pass;
    torch::autograd::meanwhile = [&] { std::thread([&] { optimizer.reset(); }).join(); };
    const DataPtr block = allocate(kGradients[0]);
    EXPECT_FALSE(optimizer);
  });
}

TEST(GradientAllocatorAlone, MemoryOutlivesTheOptimizerAndTheContext) {
  std::vector<DataPtr> blocks;
  torch::Tensor tensor;
  std::weak_ptr<Arena> of_context;
  with_arena([&](const std::shared_ptr<Arena>& arena) {
    const Optimizer optimizer(arena);
    optimizer.use_here();
    const BackwardPass pass;
    for (const std::size_t bytes : kGradients) blocks.push_back(allocate(bytes));
    for (const DataPtr& block : blocks) EXPECT_TRUE(in_arena(*arena, block));
    const std::array<std::int64_t, 1> shape{100};
    const std::array<std::int64_t, 1> strides{1};
    tensor = optimizer.heap().empty(shape, strides, c10::ScalarType::Float);
    ASSERT_TRUE(tensor.defined());
    of_context = arena;
  });
  EXPECT_FALSE(of_context.expired());
  run([&](int thread) {
    const auto mine = static_cast<std::size_t>(thread);
    if (mine < blocks.size()) {
      std::memset(blocks[mine].get(), 1, kGradients[mine]);
      [[maybe_unused]] const DataPtr freed_here = std::move(blocks[mine]);
    } else {
      std::memset(tensor.data_ptr(), 1, 100 * sizeof(float));
      tensor = {};
    }
  });
  // The arena is released when another context exists.
  with_arena([](const std::shared_ptr<Arena>& arena) { const Optimizer next(arena); });
  EXPECT_TRUE(of_context.expired());
}

TEST(GradientAllocatorAlone, AThreadGoesOnAfterTheShutdown) {
  std::promise<void> used;
  std::promise<void> ended;
  std::thread trainer;
  with_arena([&](const std::shared_ptr<Arena>& arena) {
    const Optimizer optimizer(arena);
    trainer = std::thread([&used, &optimizer, over = ended.get_future()] {
      optimizer.use_here();
      const BackwardPass pass;
      DataPtr gradient = allocate(kGradients[0]);
      used.set_value();
      ASSERT_EQ(over.wait_for(kDeadline), std::future_status::ready);
      // These blocks come from the heap of the process, where ASan sees them.
      for (const std::size_t bytes : kGradients) gradient = allocate(bytes);
    });
    ASSERT_EQ(used.get_future().wait_for(kDeadline), std::future_status::ready);
  });
  ended.set_value();
  trainer.join();
}

/// Is destroyed at the thread's end, after the allocator's own variable, which the thread makes
/// later.
struct AtThreadExit {
  ~AtThreadExit() {
    const BackwardPass pass;
    block = allocate(kGradients[0]);
  }
  DataPtr block{nullptr, nullptr, [](void*) {}, c10::Device(c10::DeviceType::CPU)};
};

TEST(GradientAllocatorAlone, ThreadsAllocateAndFreeWhileTheyEnd) {
  with_arena([](const std::shared_ptr<Arena>& arena) {
    {
      const Optimizer optimizer(arena);
      run([&](int) {
        static thread_local AtThreadExit last;
        const BackwardPass pass;
        last.block = allocate(kGradients[2]);
        optimizer.use_here();
        last.block = allocate(kGradients[2]);
        EXPECT_TRUE(in_arena(*arena, last.block));
      });
    }
    EXPECT_EQ(arena->used(), 0U);
  });
}

}  // namespace
}  // namespace hvd
