// Binds elastic training.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace hvd::python {

/// Defines `elastic_run` and what hvd.torch.elastic asks while it runs.
void bind_elastic(py::module_& module);

}  // namespace hvd::python
