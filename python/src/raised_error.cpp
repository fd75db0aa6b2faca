#include "raised_error.hpp"

#include <string>
#include <utility>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace hvd::python {
namespace {

py::handle internal_error;  // the classes; they live as long as the process
py::handle not_initialized_error;

Errc code_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Errc::internal); ++i) {
    if (to_string(static_cast<Errc>(i)) == name) return static_cast<Errc>(i);
  }
  return Errc::aborted;
}

void raise(const Error& error) {
  if (error.code() == Errc::duplicate_name || error.code() == Errc::invalid_argument) {
    py::set_error(PyExc_ValueError, error.what());
    return;
  }
  const py::handle type =
      error.code() == Errc::not_initialized ? not_initialized_error : internal_error;
  const py::object made = type(error.what());
  made.attr("code") = std::string(to_string(error.code()));
  made.attr("rank") = error.fault().rank;
  PyErr_SetObject(type.ptr(), made.ptr());
}

/// Stands for another node of autograd in the graph.
class RaisingNode final : public torch::autograd::Node {
 public:
  explicit RaisingNode(std::shared_ptr<Node> node)
      : Node(torch::autograd::edge_list(node->next_edges())), node_(std::move(node)) {}
  std::string name() const override { return node_->name(); }
  void release_variables() override { node_->release_variables(); }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    try {
      return (*node_)(std::move(gradients));
    } catch (const Error& error) {
      const py::gil_scoped_acquire locked;
      raise(error);
      python_error raised;
      raised.persist();  // since another thread may rethrow it
      throw raised;
    }
  }

  std::shared_ptr<Node> node_;
};

}  // namespace

void bind_errors(py::module_& module) {
  internal_error =
      py::exception<Error>(module, "HorovodInternalError", PyExc_RuntimeError).release();
  const py::tuple bases = py::make_tuple(internal_error, py::handle(PyExc_ValueError));
  not_initialized_error = PyErr_NewException("hvd._C.NotInitializedError", bases.ptr(), nullptr);
  if (!not_initialized_error) throw py::error_already_set();
  module.attr("NotInitializedError") = not_initialized_error;
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const Error& error) {
      raise(error);
    }
  });
}

void throw_if_internal(const py::error_already_set& raised) {
  if (!raised.matches(internal_error)) return;
  const py::object& error = raised.value();
  Fault fault;
  fault.rank = py::getattr(error, "rank", py::int_(-1)).cast<int>();
  fault.cause = py::str(error).cast<std::string>();
  const auto code = py::getattr(error, "code", py::str("")).cast<std::string>();
  throw RaisedError(code_of(code), std::move(fault), raised);
}

void raise_in_backward(const torch::Tensor& tensor) {
  if (!tensor.grad_fn()) return;
  torch::autograd::set_history(tensor, std::make_shared<RaisingNode>(tensor.grad_fn()));
}

}  // namespace hvd::python
