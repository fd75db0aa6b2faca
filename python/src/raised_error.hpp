// Shows errors of hvd as exceptions of Python, and knows them again when Python raises them.
#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <hvd/core/error.hpp>

namespace hvd::python {

/// Defines HorovodInternalError, Horovod's name for an error of a collective, whose attributes
/// `code` and `rank` say what happened and which rank is to blame, or -1. Wrong arguments raise
/// ValueError, as in Horovod. So do calls before `init`, whose NotInitializedError is of both
/// classes.
void bind_errors(py::module_& module);

/// An error of hvd that came back from Python as `raised`. It is hidden as the types of pybind11
/// are.
class [[gnu::visibility("hidden")]] RaisedError final : public Error {
 public:
  RaisedError(Errc code, Fault fault, py::error_already_set raised)
      : Error(code, std::move(fault)), raised_(std::move(raised)) {}
  [[nodiscard]] const py::error_already_set& raised() const noexcept { return raised_; }

 private:
  py::error_already_set raised_;
};

/// Throws a RaisedError if `raised` is a HorovodInternalError. One that the program made itself
/// counts as Errc::aborted, so that it ends a generation as in Horovod. The caller holds Python's
/// lock.
void throw_if_internal(const py::error_already_set& raised);

/// Lets the node of autograd that has computed `tensor` raise errors of hvd as exceptions of
/// Python. LibTorch alone would make each a RuntimeError. Nobody may have used the tensor yet.
void raise_in_backward(const torch::Tensor& tensor);

}  // namespace hvd::python
