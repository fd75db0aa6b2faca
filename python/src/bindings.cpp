// The Python module hvd._C: what the Python files of hvd.torch call. Every call that may wait
// releases Python's lock, since the threads of the engine may need it.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/utils/pybind.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/adasum.hpp>
#include <hvd/torch/agent_store.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/grouped_collectives.hpp>
#include <hvd/torch/sparse.hpp>
#include <hvd/torch/sync_batch_norm.hpp>

#include "bind_elastic.hpp"
#include "gradients/gradient_placement.hpp"
#include "group_backend.hpp"
#include "raised_error.hpp"

namespace hvd::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;

AllreduceOptions reduction(std::string name, int op, double prescale, double postscale,
                           std::int32_t process_set) {
  if (op < 0 || op >= kReduceOpCount) {
    throw Error(Errc::invalid_argument, fmt::format("there is no reduce operation {}", op));
  }
  return {std::move(name), static_cast<ReduceOp>(op), prescale, postscale, process_set};
}

template <class Handle>
void bind_work(py::module_& module, const char* name) {
  py::class_<Handle>(module, name)
      .def("wait", &Handle::wait, Unlocked())
      .def("done", &Handle::done, Unlocked());
}

void bind_job(py::module_& module) {
  module.def(
      "init",
      [](std::vector<int> ranks) {
        Config config = Config::from_environment();
        config.ranks = std::move(ranks);
        init(config);
      },
      Unlocked());
  module.def("shutdown", &shutdown, Unlocked());
  module.def("is_initialized", &is_initialized);
  module.def("rank", &rank);
  module.def("size", &size);
  module.def("local_rank", &local_rank);
  module.def("local_size", &local_size);
  module.def("cross_rank", &cross_rank);
  module.def("cross_size", &cross_size);
  module.def(
      "add_process_set", [](const std::vector<int>& ranks) { return add_process_set(ranks).id; },
      Unlocked());
  module.def(
      "remove_process_set",
      [](std::int32_t id) {
        remove_process_set({id, {}});
      },
      Unlocked());
  module.def(
      "join", [] { return join(); }, Unlocked());
  module.def(
      "barrier", [](std::int32_t process_set) { barrier({.process_set = process_set}); },
      Unlocked());
  module.def("start_timeline", &start_timeline, Unlocked());
  module.def("stop_timeline", &stop_timeline, Unlocked());
}

void bind_collectives(py::module_& module) {
  bind_work<TensorWork>(module, "TensorWork");
  bind_work<TensorGroupWork>(module, "TensorGroupWork");
  bind_work<SparseWork>(module, "SparseWork");
  py::class_<AlltoallWork>(module, "AlltoallWork")
      .def(
          "wait",
          [](const AlltoallWork& work) {
            AlltoallResult result = work.wait();
            return std::make_pair(std::move(result.output), std::move(result.received_splits));
          },
          Unlocked())
      .def("done", &AlltoallWork::done, Unlocked());

  module.def(
      "allreduce",
      [](const torch::Tensor& tensor, std::string name, int op, double before, double after,
         std::int32_t set, bool in_place) {
        const at::NoGradGuard no_grad;
        const AllreduceOptions options = reduction(std::move(name), op, before, after, set);
        return in_place ? allreduce_(tensor, options) : allreduce(tensor, options);
      },
      Unlocked());
  module.def(
      "allreduce_async",
      [](const torch::Tensor& tensor, std::string name, int op, double before, double after,
         std::int32_t set, bool in_place) {
        const AllreduceOptions options = reduction(std::move(name), op, before, after, set);
        return in_place ? allreduce_async_(tensor, options) : allreduce_async(tensor, options);
      },
      Unlocked());
  module.def(
      "grouped_allreduce_async",
      [](const Tensors& tensors, std::string name, int op, double before, double after,
         std::int32_t set, bool in_place) {
        const AllreduceOptions options = reduction(std::move(name), op, before, after, set);
        return in_place ? grouped_allreduce_async_(tensors, options)
                        : grouped_allreduce_async(tensors, options);
      },
      Unlocked());
  module.def(
      "sparse_allreduce_async",
      [](const torch::Tensor& tensor, std::string name, int op, std::int32_t set) {
        return sparse_allreduce_async(tensor, reduction(std::move(name), op, 1, 1, set));
      },
      Unlocked());
  module.def(
      "adasum_",
      [](const Tensors& tensors, std::string name, std::int32_t set) {
        adasum_(tensors, {std::move(name), set});
      },
      Unlocked());
  module.def(
      "allgather_async",
      [](const torch::Tensor& tensor, std::string name, std::int32_t set) {
        return allgather_async(tensor, {std::move(name), set});
      },
      Unlocked());
  module.def(
      "grouped_allgather_async",
      [](const Tensors& tensors, std::string name, std::int32_t set) {
        return grouped_allgather_async(tensors, {std::move(name), set});
      },
      Unlocked());
  module.def(
      "broadcast_async",
      [](const torch::Tensor& tensor, int root, std::string name, std::int32_t set, bool in_place) {
        const CollectiveOptions options{std::move(name), set};
        return in_place ? broadcast_async_(tensor, root, options)
                        : broadcast_async(tensor, root, options);
      },
      Unlocked());
  module.def(
      "reducescatter_async",
      [](const torch::Tensor& tensor, std::string name, int op, double before, double after,
         std::int32_t set) {
        return reducescatter_async(tensor, reduction(std::move(name), op, before, after, set));
      },
      Unlocked());
  module.def(
      "grouped_reducescatter_async",
      [](const Tensors& tensors, std::string name, int op, double before, double after,
         std::int32_t set) {
        return grouped_reducescatter_async(tensors,
                                           reduction(std::move(name), op, before, after, set));
      },
      Unlocked());
  module.def(
      "alltoall_async",
      [](const torch::Tensor& tensor, const std::vector<std::int64_t>& splits, std::string name,
         std::int32_t set) {
        return alltoall_async(tensor, splits, {std::move(name), set});
      },
      Unlocked());
}

/// The layer of Python owns the settings, the parameters and the buffers, which the program may
/// have changed since the last call.
void bind_layers(py::module_& module) {
  using Layer = SyncBatchNormImpl;
  py::class_<Layer, std::shared_ptr<Layer>>(module, "SyncBatchNorm")
      .def(py::init([](std::int64_t features, bool affine, bool track_running_stats) {
        return std::make_shared<Layer>(
            torch::nn::BatchNormOptions(features).affine(affine).track_running_stats(
                track_running_stats));
      }))
      .def(
          "forward",
          [](Layer& layer, const torch::Tensor& input, bool training, double eps,
             std::optional<double> momentum, const std::optional<torch::Tensor>& weight,
             const std::optional<torch::Tensor>& bias,
             const std::optional<torch::Tensor>& running_mean,
             const std::optional<torch::Tensor>& running_var,
             const std::optional<torch::Tensor>& num_batches_tracked) {
            layer.options.eps(eps).momentum(momentum);
            layer.weight = weight.value_or(torch::Tensor());
            layer.bias = bias.value_or(torch::Tensor());
            layer.running_mean = running_mean.value_or(torch::Tensor());
            layer.running_var = running_var.value_or(torch::Tensor());
            layer.num_batches_tracked = num_batches_tracked.value_or(torch::Tensor());
            layer.train(training);
            const torch::Tensor output = layer.forward(input);
            raise_in_backward(output);
            return output;
          },
          Unlocked());
}

/// Returns whether no other tensor uses the memory of a gradient that autograd hands to a parameter.
/// A view holds its base.
bool has_own_memory(const at::Tensor& gradient) {
  if (!gradient.has_storage()) return true;  // sparse gradients are not reduced in place
  const std::size_t holders = gradient.storage().use_count();
  if (!gradient.is_view()) return holders <= 1;
  return holders <= 2 && gradient._base().use_count() <= 1;
}

/// While it exists, the backward passes of the thread that has made it allocate gradients of the
/// parameters' sizes in the memory that the ranks share.
void bind_memory(py::module_& module) {
  using detail::GradientPlacement;
  py::class_<GradientPlacement>(module, "GradientPlacement")
      .def(py::init([](const Tensors& parameters) {
        return std::make_unique<GradientPlacement>(GradientMemory::born_shared, context(),
                                                   parameters);
      }));
  module.def("has_own_memory", &has_own_memory);
}

/// Python may destroy it and holds its lock then.
class PythonBackend final : public GroupBackend {
 public:
  using GroupBackend::GroupBackend;
  ~PythonBackend() override {
    std::optional<py::gil_scoped_release> unlocked;
    if (PyGILState_Check()) unlocked.emplace();
    leave();
  }
};

void bind_backend(py::module_& module) {
  module.def(
      "create_backend",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& name,
         bool is_default, double seconds) {
        const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<PythonBackend>(
            store, rank, size, GroupBackend::Settings{name, is_default, timeout}));
      },
      Unlocked());
  module.def("leave_groups", &GroupBackend::leave_all, Unlocked());
}

}  // namespace
}  // namespace hvd::python

PYBIND11_MODULE(_C, module) {
  hvd::python::bind_errors(module);
  hvd::python::bind_job(module);
  hvd::python::bind_collectives(module);
  hvd::python::bind_layers(module);
  hvd::python::bind_memory(module);
  hvd::python::bind_backend(module);
  hvd::python::bind_elastic(module);
}
