#include "device/torch_device.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include "fake_gpu/device_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime.hpp"

namespace hvd::test {
namespace {

constexpr int kDevices = 4;

void check(cudaError_t result) { TORCH_CHECK(result == cudaSuccess, "the fake CUDA: ", result); }

/// LibTorch's pool has one for each device here.
std::array<cudaStream_t, kDevices>& side_streams() {
  static std::array<cudaStream_t, kDevices> streams{};
  return streams;
}

/// The default stream of every device is null, as in LibTorch. So calls of CUDA with it need that
/// device as the thread's own.
cudaStream_t& current_stream(c10::DeviceIndex device) {
  thread_local std::array<cudaStream_t, kDevices> streams{};
  return streams.at(static_cast<std::size_t>(device));
}

c10::Stream wrapped(c10::DeviceIndex device, cudaStream_t stream) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, device),
                     reinterpret_cast<c10::StreamId>(stream));
}
cudaStream_t unwrapped(const c10::Stream& stream) {
  return reinterpret_cast<cudaStream_t>(stream.id());
}

std::string key_of(Counted what, int device) {
  return std::to_string(static_cast<int>(what)) + " of device " + std::to_string(device);
}

void count(Counted what, int device) { fake_gpu::note(key_of(what, device)); }

void wait_for(c10::DeviceIndex device, cudaStream_t stream) {
  count(Counted::host_waits, device);
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, device));
  while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
  static_cast<void>(cudaGetLastError());
}

/// Tells the allocator that a stream uses a block. A block that is nobody's is ignored.
void note_use(void* data, const c10::Stream& stream);

/// Does with the thread's device what CUDAGuardImpl does: `record` and `destroyEvent` set the
/// previous device again, which makes a context there, and only a guard's end does not.
class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] c10::DeviceType type() const override { return c10::kCUDA; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  [[nodiscard]] c10::Device getDevice() const override {
    int device = 0;
    check(cudaGetDevice(&device));
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(device)};
  }
  void setDevice(c10::Device device) const override {
    if (device != getDevice()) check(cudaSetDevice(device.index()));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    fake_gpu::current_device() = device.index();
  }
  [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
    return wrapped(device.index(), current_stream(device.index()));
  }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device device) const override {
    return wrapped(device.index(), nullptr);
  }
  [[nodiscard]] void* getStreamNativeHandle(const c10::Stream stream) const override {
    return unwrapped(stream);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_stream(stream.device_index()) = unwrapped(stream);
    return before;
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return wrapped(device.index(), side_streams().at(static_cast<std::size_t>(device.index())));
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    count(Counted::events_recorded, stream.device_index());
    on_device(stream.device(), [&] {
      auto handle = static_cast<cudaEvent_t>(*event);
      if (!handle) check(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming));
      check(cudaEventRecord(handle, unwrapped(stream)));
      *event = handle;
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    count(Counted::stream_waits, stream.device_index());
    on_device(stream.device(), [&] {
      check(cudaStreamWaitEvent(unwrapped(stream), static_cast<cudaEvent_t>(event), 0));
    });
  }
  [[nodiscard]] bool queryEvent(void* event) const override {
    return cudaEventQuery(static_cast<cudaEvent_t>(event)) == cudaSuccess;
  }
  void destroyEvent(void* event, c10::DeviceIndex device) const noexcept override {
    if (!event) return;
    const int before = fake_gpu::current_device();
    if (before != device) static_cast<void>(cudaSetDevice(device));
    static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
    if (before != device) static_cast<void>(cudaSetDevice(before));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    note_use(data.get(), stream);
  }
  [[nodiscard]] bool queryStream(const c10::Stream& stream) const override {
    const c10::DeviceGuard guard(stream.device());
    return cudaStreamQuery(unwrapped(stream)) == cudaSuccess;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for(stream.device_index(), unwrapped(stream));
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

 private:
  template <class Body>
  void on_device(c10::Device device, const Body& body) const {
    const c10::Device before = getDevice();
    setDevice(device);
    body();
    setDevice(before);
  }
};

/// Keeps freed blocks for the next tensors of the same size and stream, since cudaFree waits for
/// the device. A block that another stream has used is not given again. LibTorch gives it again
/// when that stream has gone on.
class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    const auto device = static_cast<c10::DeviceIndex>(fake_gpu::used_device());
    const Key key(device, current_stream(device), size);
    const std::lock_guard lock(mutex_);
    void* data = nullptr;
    auto& free = free_[key];
    if (free.empty()) {
      // LibTorch cuts tensors from large blocks, so few of them need cudaMalloc, which may wait for
      // the device.
      TORCH_CHECK(!fake_gpu::runtime().is_broken(device), "the fake CUDA: a failed device");
      data = fake_gpu::device_memory().allocate(size, device);
      blocks_[data] = key;
    } else {
      data = free.back();
      free.pop_back();
    }
    return {data, data, &give_back, c10::Device(c10::kCUDA, device)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
  void note_use(void* data, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(data);
    // LibTorch's allocator with cudaMallocAsync throws too. Its usual one ignores such memory.
    TORCH_INTERNAL_ASSERT(at != blocks_.end(), "ptr not found in ptr_info");
    auto& [device, own, size] = at->second;
    if (device != stream.device_index() || own != unwrapped(stream)) device = kNotGivenAgain;
  }
  void release_all() {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, blocks] : free_) {
      for (void* const block : blocks) static_cast<void>(cudaFree(block));
    }
    free_.clear();
    blocks_.clear();
  }

 private:
  /// A device, one of its streams, and a size.
  using Key = std::tuple<c10::DeviceIndex, cudaStream_t, std::size_t>;
  /// Replaces the device of a block that several streams use.
  static constexpr c10::DeviceIndex kNotGivenAgain = -1;
  static void give_back(void* data);

  std::mutex mutex_;
  std::map<void*, Key> blocks_;
  std::map<Key, std::vector<void*>> free_;
};

CachingAllocator& allocator() {
  static CachingAllocator the;
  return the;
}

void CachingAllocator::give_back(void* data) {
  CachingAllocator& self = allocator();
  const std::lock_guard lock(self.mutex_);
  const auto at = self.blocks_.find(data);
  if (at != self.blocks_.end()) self.free_[at->second].push_back(data);
}

void note_use(void* data, const c10::Stream& stream) { allocator().note_use(data, stream); }

/// A task in the current stream of the tensor's device.
void queue(const at::Tensor& tensor, std::function<void()> task) {
  count(Counted::operations, tensor.device().index());
  const c10::DeviceGuard guard(tensor.device());
  const auto stream = fake_gpu::runtime().stream(current_stream(tensor.device().index()));
  TORCH_CHECK(stream, "no stream");
  stream->push(std::move(task));
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator(), kKeys, type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator(), kKeys,
                                           type.value_or(at::kFloat));
}

/// A tensor's memory as a tensor of the CPU, for a task.
at::Tensor on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

/// LibTorch's writer of archives reads the whole storage of a tensor.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(std::move(source));
  impl.set_sizes_and_strides(size, stride, offset);
  return self;
}

/// Between a device and the host it waits, as for pageable memory.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool) {
  const at::Tensor& there = self.is_cuda() ? self : src;
  const auto task = [to = self.is_cuda() ? on_host(self) : self,
                     from = src.is_cuda() ? on_host(src) : src] {
    const at::InferenceMode plain;
    at::Tensor(to).copy_(from);
  };
  queue(there, task);
  const c10::DeviceIndex device = there.device().index();
  if (!self.is_cuda() || !src.is_cuda()) wait_for(device, current_stream(device));
  return self;
}

/// Ends an operation in place that ran on the host.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  at::Tensor(to).copy_(self);
  return to;
}

using Tensors = std::vector<at::Tensor>;

/// Returns the tensors among the arguments or results of an operation.
Tensors tensors_in(const std::vector<c10::IValue>& values) {
  Tensors tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isList()) continue;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) tensors.push_back(element.toTensor());
    }
  }
  return tensors;
}

/// Returns the values with other tensors, in the order of `tensors_in`.
std::vector<c10::IValue> with_tensors(const std::vector<c10::IValue>& values,
                                      const Tensors& tensors) {
  std::vector<c10::IValue> replaced;
  auto next = tensors.begin();
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      replaced.emplace_back(*next++);
    } else if (value.isList()) {
      c10::impl::GenericList list(value.toList().elementType());
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isTensor() ? c10::IValue(*next++) : element);
      }
      replaced.emplace_back(std::move(list));
    } else {
      replaced.push_back(value);
    }
  }
  return replaced;
}

/// Returns the results of an operation on tensors of the CPU.
std::vector<c10::IValue> results_of(const c10::OperatorHandle& op,
                                    std::vector<c10::IValue> arguments) {
  op.callBoxed(arguments);
  return arguments;
}

/// Whether the host has to know values of the tensors before it can go on, or the operation takes
/// no tensor of the device.
bool needs_the_host(const c10::OperatorHandle& op, const Tensors& given) {
  const auto is_on_device = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cuda();
  };
  const auto& returns = op.schema().returns();
  return std::none_of(given.begin(), given.end(), is_on_device) ||
         !std::all_of(returns.begin(), returns.end(),
                      [](const c10::Argument& result) {
                        return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
                               result.type()->isSubtypeOf(*c10::ListType::ofTensors());
                      }) ||
         op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::nondeterministic_seeded);
}

/// Queues any other operation, which runs on the CPU. The shapes of the results are those of the
/// operation on zeros.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto own = torch::jit::last(*stack, op.schema().arguments().size());
  const std::vector<c10::IValue> arguments(own.begin(), own.end());
  const Tensors given = tensors_in(arguments);
  if (needs_the_host(op, given)) return at::native::cpu_fallback(op, stack);
  Tensors zeros;
  Tensors memory;
  const at::Tensor* device = nullptr;
  for (const at::Tensor& tensor : given) {
    const bool is_here = tensor.defined() && tensor.is_cuda();
    if (is_here && device == nullptr) device = &tensor;
    if (is_here) {
      zeros.push_back(at::zeros_like(on_host(tensor)));
    } else {
      zeros.push_back(tensor.defined() ? tensor.clone() : tensor);
    }
    memory.push_back(is_here ? on_host(tensor) : tensor);
  }
  const std::vector<c10::IValue> shapes = results_of(op, with_tensors(arguments, zeros));
  Tensors results;
  Tensors to;  // undefined where the operation itself writes
  for (const at::Tensor& shape : tensors_in(shapes)) {
    const auto of = std::find_if(zeros.begin(), zeros.end(), [&](const at::Tensor& zero) {
      return zero.defined() && zero.is_alias_of(shape);
    });
    if (of != zeros.end()) {
      TORCH_CHECK(of->is_same(shape), "the fake CUDA: ", op.schema().name(), " returns a view");
      const auto index = static_cast<std::size_t>(of - zeros.begin());
      at::Tensor same = given[index];
      if (same.sizes() != shape.sizes()) {  // it had no elements yet
        const at::Tensor resized =
            at::empty_strided(shape.sizes(), shape.strides(), same.options());
        set_storage(same, resized.storage(), 0, shape.sizes(), shape.strides());
        memory[index] = on_host(same);
      }
      results.push_back(same);
      to.emplace_back();
    } else {
      results.push_back(at::empty_strided(shape.sizes(), shape.strides(),
                                          shape.options().device(device->device())));
      to.push_back(on_host(results.back()));
    }
  }
  queue(*device, [op, to, with_memory = with_tensors(arguments, memory)] {
    const at::InferenceMode plain;
    const Tensors from = tensors_in(results_of(op, with_memory));
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].defined()) at::Tensor(to[i]).copy_(from[i]);
    }
  });
  const std::vector<c10::IValue> returned = with_tensors(shapes, results);
  torch::jit::drop(*stack, arguments.size());
  stack->insert(stack->end(), returned.begin(), returned.end());
}

/// Autograd looks for streams only where LibTorch has CUDA.
class DeviceHooks final : public at::CUDAHooksInterface {
 public:
  explicit DeviceHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  [[nodiscard]] bool hasCUDA() const override { return true; }
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return fake_gpu::contexts().count(device) != 0;
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kDevices; }
};

const at::RegistererCUDAHooksRegistry registered_hooks(
    "CUDAHooks", at::CUDAHooksRegistry(),
    &at::RegistererCUDAHooksRegistry::DefaultCreator<DeviceHooks>);

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, GuardImpl)

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("copy_", &copy_);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

int count_of(Counted what, int device) { return fake_gpu::calls(key_of(what, device)); }

TorchDevice::TorchDevice() {
  fake_gpu::reset(kDevices);  // autograd has a thread for each, which lasts as long as the process
  c10::SetAllocator(c10::kCUDA, &allocator());
  for (int device = 0; device < kDevices; ++device) {
    side_streams().at(static_cast<std::size_t>(device)) =
        static_cast<cudaStream_t>(fake_gpu::runtime().add_stream(device));
  }
}

TorchDevice::~TorchDevice() {
  // Tasks that are still queued use the memory, and cudaFree waits only for those of the current
  // device.
  for (int device = 0; device < kDevices; ++device) {
    for (const auto& stream : fake_gpu::runtime().streams_of(device)) {
      stream->synchronize(stream->tail());
    }
  }
  allocator().release_all();
  for (cudaStream_t& stream : side_streams()) {
    static_cast<void>(cudaStreamDestroy(std::exchange(stream, nullptr)));
  }
}

}  // namespace hvd::test
