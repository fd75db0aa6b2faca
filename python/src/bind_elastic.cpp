#include "bind_elastic.hpp"

#include <utility>

#include <hvd/elastic.hpp>

#include "raised_error.hpp"

namespace hvd::python {
namespace {

/// Calls a function of Python and returns whether its result is true. An error of hvd is thrown
/// with its code and the rank that it blames, which `elastic_run` looks at.
bool call(const py::object& function) {
  const py::gil_scoped_acquire locked;
  try {
    const py::object result = function();
    return result && PyObject_IsTrue(result.ptr()) == 1;
  } catch (const py::error_already_set& raised) {
    throw_if_internal(raised);
    throw;
  }
}

/// The state is Python's; this calls its functions, which live until `elastic_run` has returned.
class PythonState final : public ElasticStateBase {
 public:
  PythonState(const py::object& reset, const py::object& synchronize, const py::object& commit)
      : reset_(reset), synchronize_(synchronize), commit_(commit) {}

  void commit() override { call(commit_); }
  void restore() override {}  // `reset` does it
  void reset() override { call(reset_); }
  void synchronize(Context&) override { call(synchronize_); }
  /// The ranks stand at the same place, so nothing is lost when the next generation begins there.
  void change_agreed() override { call(commit_); }

 private:
  const py::object& reset_;
  const py::object& synchronize_;
  const py::object& commit_;
};

/// Whether all ranks have agreed to end the generation. Then it returns true in later calls too.
bool generation_ends() {
  try {
    elastic::check_host_updates();
  } catch (const std::exception&) {
    throw;
  } catch (...) {  // passes through the function of a C++ trainer; Python has an exception for it
    return true;
  }
  return false;
}

/// `run` returns true when the agreement to end the generation has left the user's function.
bool run_elastic(const py::object& reset, const py::object& synchronize, const py::object& commit,
                 const py::object& run) {
  PythonState state(reset, synchronize, commit);
  try {
    const py::gil_scoped_release unlocked;
    return elastic_run(state, [&run] {
      if (!call(run)) return;
      elastic::check_host_updates();  // throws what ends the generation
      throw Error(Errc::invalid_argument, "HostsUpdatedInterrupt was not raised by hvd");
    });
  } catch (const RaisedError& error) {
    throw py::error_already_set(error.raised());
  }
}

}  // namespace

void bind_elastic(py::module_& module) {
  module.def("elastic_active", &elastic::active);
  module.def("elastic_generation", &elastic::generation);
  module.def("generation_ends", &generation_ends, py::call_guard<py::gil_scoped_release>());
  module.def("elastic_run", &run_elastic);
}

}  // namespace hvd::python
