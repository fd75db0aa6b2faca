// A backend of torch.distributed whose operations run on a context of hvd.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/version.h>

#include <hvd/core/context.hpp>

#include "any_source.hpp"
#include "backend_work.hpp"
#include "gradients/gradient_placement.hpp"

namespace hvd::python {

/// One process group has one context, whose ranks are those of the group. torch.distributed matches
/// operations by their order, hvd by name; so operations get names that follow from their order.
class GroupBackend : public c10d::Backend {
 public:
  struct Settings {
    std::string name;         ///< of the group
    bool is_default = false;  ///< the group of all ranks: hvdrun's reports and timelines are its
    std::chrono::milliseconds timeout{};
  };
  /// Collective among the ranks of the group, which find each other through `store`.
  GroupBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Settings settings);
  ~GroupBackend() override;
  /// Ends the threads of this backend without waiting for other ranks. Afterwards nobody may use
  /// it. The caller must not hold Python's lock, which those threads may need to release a tensor.
  void leave() noexcept;

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  const std::string getBackendName() const override { return "hvd"; }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR > 8  // torch 2.8 does not ask for them
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>("hvd", settings_.timeout);
  }
  void setTimeout(std::chrono::milliseconds timeout) override { settings_.timeout = timeout; }
#endif
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return operations_; }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// DistributedDataParallel allocates its buckets here. They lie in the arena if there is room.
  bool supportsTensorAlloc(c10::DeviceIndex index) override { return placement_ && index < 0; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return placement_->empty_row(size, options);
  }

  /// Waits for the other ranks. Later operations throw. Does nothing in a forked child.
  void shutdown() override;
  void abort() override { context_->abort("the process group was aborted"); }

  /// Leaves the groups of this process without waiting, at the end of a program that did not
  /// destroy them.
  static void leave_all() noexcept;

 private:
  /// Operations that are equal in these members have names that differ only in a number.
  struct Alike {
    OpKind kind;
    DType dtype;
    ReduceOp op;
    int root;
    std::int64_t count;
    auto operator<=>(const Alike&) const = default;
  };
  /// The names of such operations, and the last work of each name. At most `kCount` of them are
  /// pending at the same time.
  struct Names {
    static constexpr std::size_t kCount = 8;
    std::size_t next = 0;
    std::array<std::string, kCount> names;
    std::array<hvd::Work, kCount> last;
  };
  std::pair<const std::string&, hvd::Work&> next_name(const Request& request);
  void run(c10d::OpType type, Submission submission, const Tensors& inputs);
  template <class CallOptions>
  WorkPointer start(c10d::OpType type, std::vector<Submission> submissions,
                    const CallOptions& options, Tensors results, const Tensors& inputs);
  WorkPointer message(const at::Tensor& tensor, int from, int to, int tag);
  bool was_received(int from, int tag, std::uint64_t number);

  const pid_t process_;  ///< the one that has made the group
  Settings settings_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<AnySource> any_source_;
  std::shared_ptr<Context> context_;
  std::optional<detail::GradientPlacement> placement_;  ///< of the default group
  std::shared_ptr<FutureCompleter> completer_;
  std::atomic<std::uint64_t> operations_ = 0;
  std::mutex mutex_;  // guards the names, also while a collective waits for its name
  std::map<Alike, Names> names_;
  std::mutex messages_mutex_;  // guards what follows, because messages do not wait for collectives
  std::map<std::pair<std::int32_t, int>, std::uint64_t> messages_;  // by pair set and tag
  std::uint64_t monitored_ = 0;
};

}  // namespace hvd::python
