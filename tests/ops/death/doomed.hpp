// Wrappers that send a signal to their own process at a named point of an operation.
#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <string_view>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/transport.hpp>

namespace hvd::test {

/// A signal, raised when this process comes to `point` for the `visit`-th time after `arm`. Points
/// are "exchange" and "message" (a piece that has come) of a transport, and the operations of a
/// backend by name.
class Doom {
 public:
  void arm(std::string_view point, int visit, int signal);
  void visit(std::string_view point);

 private:
  std::string point_;
  int left_ = 0;
  int signal_ = SIGKILL;
};

/// Wraps `inner`, which visits the points of a transport. `doom` must outlive the result, here and
/// below.
[[nodiscard]] std::unique_ptr<Transport> make_doomed(std::unique_ptr<Transport> inner, Doom& doom);

/// Wraps `inner` and its subsets, which visit the points of a backend.
[[nodiscard]] std::unique_ptr<Backend> make_doomed(std::unique_ptr<Backend> inner, Doom& doom);

}  // namespace hvd::test
